"""Rules about a run: the bytes of throttled replicas in any window, and the number of empty fetches."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import Final

from weir.quotas.replication.throttles import Role

WINDOW_MS: Final = 11_000
"""A broker's usage stays counted for at least this time (11 samples of 1 s)."""
WINDOW_MAX_S: Final = 12
"""The window over which the rate is measured is at most this long: the oldest sample's records were up to
1 s younger than its beginning.
"""


class Usage:
    """The bytes of records of throttled replicas that one broker has sent or fetched, and its rates."""

    def __init__(self, limit: float, now_ms: int) -> None:
        self._limits = deque([(now_ms, limit)])
        self._sent: deque[tuple[int, int, int]] = deque()

    def limit(self, limit: float, now_ms: int) -> None:
        self._limits.append((now_ms, limit))

    def note(self, follower: int, size: int, now_ms: int, *, slack_ms: int, uncut: int) -> None:
        """Count a response to a follower, and check the last 11 s.

        When the last of the fetches of that time was sent, the usage was at most rate x 12 s. Each follower
        had at most one other fetch in flight then. So the bound is rate x 12 s, and a response per follower.
        A response has at most rate x 12 s, and `uncut` bytes. Rates that were in force up to `slack_ms`
        before these 11 s count, because fetches that were decided under them may have been in flight.
        """
        begin_ms = now_ms - WINDOW_MS
        self._sent.append((now_ms, follower, size))
        while self._sent[0][0] <= begin_ms:
            self._sent.popleft()
        while len(self._limits) > 1 and self._limits[1][0] <= begin_ms - slack_ms:
            self._limits.popleft()
        largest: dict[int, int] = defaultdict(int)
        for _when, who, one in self._sent:
            largest[who] = max(largest[who], one)
        allowed = max(limit for _when, limit in self._limits) * WINDOW_MAX_S
        assert size <= allowed + uncut, f"a response has {size} bytes of throttled replicas"
        bound = allowed + sum(largest.values())
        total = sum(one for _when, _who, one in self._sent)
        assert total <= bound, f"{total} bytes of throttled replicas in 11 s, at most {bound} are allowed"


class Usages:
    def __init__(self) -> None:
        self._usages: dict[tuple[Role, int], Usage] = {}
        self.rates: dict[tuple[Role, int], float] = {}

    def use(self, rates: dict[tuple[Role, int], float], now_ms: int) -> None:
        """Put rates (bytes/s) in force."""
        self.rates = rates
        for key, limit in rates.items():
            if key in self._usages:
                self._usages[key].limit(limit, now_ms)
            else:
                self._usages[key] = Usage(limit, now_ms)

    def forget(self, now_ms: int) -> None:
        self._usages.clear()
        self.use(self.rates, now_ms)

    def note(
        self, key: tuple[Role, int], follower: int, size: int, now_ms: int, *, slack_ms: int, uncut: int
    ) -> None:
        if self.rates[key] < math.inf:
            self._usages[key].note(follower, size, now_ms, slack_ms=slack_ms, uncut=uncut)
