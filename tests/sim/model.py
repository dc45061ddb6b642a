"""The model: Kafka's quota arithmetic, written from its description."""

from __future__ import annotations

import math
from typing import Final

SAMPLES: Final = 11
WINDOW_MS: Final = 1000
WAIT_MS_MAX: Final = 2**31 - 1


HOLD_MS_MAX: Final = 5000
"""For how long the first produce of a connection may wait for others."""
ASKED_AGAIN_MS: Final = 1000
"""For how long a broker is not asked again for a name that it did not give."""
LINE_MS: Final = 10_000
"""Up to this length of the line, a connection that has waited gets records in its turn."""
SHARE_WAIT_MS_MAX: Final = 5000
"""How long a share fetch may be told to wait."""


class Ledger:
    """One quota of a client or topic: the rate of the last samples, and the waits that came of it."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.charged = 0
        self.until_ms = 0
        """When the last wait ends that was caused here."""
        self._paid_ms = 0.0
        """When the limit has paid for all share fetches."""
        self._line_ms = 0.0
        """When it has paid for the fetches of all connections that wait in line."""
        self._samples: list[list[float]] = []
        """[start, last event, value] of each slot."""
        self._current = 0

    def charge(self, size: int, now_ms: int) -> int:
        """Charge; return when the wait for that ends, 0 if there is none."""
        self.charged += size
        samples, empty = self._samples, [now_ms, now_ms, 0.0]
        if samples and now_ms - samples[self._current][0] >= WINDOW_MS:
            self._current = (self._current + 1) % (SAMPLES + 1)
            samples[self._current : self._current + 1] = [[*empty]]
        samples = self._samples = samples or [[*empty]]
        samples[self._current][1:] = [now_ms, samples[self._current][2] + size]
        for sample in samples:
            if now_ms - sample[1] >= SAMPLES * WINDOW_MS:
                sample[:] = empty
        window_ms = now_ms - min(start for start, _last, _value in samples)
        window_ms += max(SAMPLES - 1 - window_ms // WINDOW_MS, 0) * WINDOW_MS
        rate = sum(value for _start, _last, value in samples) / (window_ms / 1000)
        wait_ms = min(math.floor((rate - self.limit) / self.limit * window_ms + 0.5), WAIT_MS_MAX)
        until_ms = now_ms + wait_ms if wait_ms > 0 else 0
        self.until_ms = max(self.until_ms, until_ms)
        return until_ms

    def fetch(self, size: int, now_ms: int) -> int:
        """Charge a fetch; return when its connection's wait ends: behind the others that wait."""
        others_ms, until_ms = self.until_ms, self.charge(size, now_ms)
        if others_ms > now_ms:
            from_ms = self._line_ms if self._line_ms > others_ms - 1 else others_ms
            self._line_ms = min(from_ms + size * 1000 / self.limit, now_ms + WAIT_MS_MAX)
            until_ms = max(until_ms, math.ceil(self._line_ms - 1e-6))
            self.until_ms = max(self.until_ms, until_ms)
        return until_ms

    def share(self, size: int, now_ms: int) -> int:
        """Charge a share fetch; return when its connection's wait ends. All share fetches of a client wait
        until the limit has paid for all bytes but those of ten seconds.
        """
        self.charge(size, now_ms)
        self._paid_ms = max(self._paid_ms, now_ms) + size * 1000 / self.limit
        self.until_ms = max(self.until_ms, int(self._paid_ms) - (SAMPLES - 1) * WINDOW_MS)
        return self.shared_ms(now_ms)

    def shared_ms(self, now_ms: int) -> int:
        """Return until when a share fetch is told to wait, 0 if it is not."""
        return min(self.until_ms, now_ms + SHARE_WAIT_MS_MAX) if self.until_ms > now_ms else 0
