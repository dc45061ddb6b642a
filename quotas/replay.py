"""Replay: simulates recorded requests under another limit, with clients that wait for their throttle times.

A `Replay` simulates one budget. The input is the recorded charges, in the order in which the requests were
taken. The classes that enforce the quota compute the throttle times. If a request's connection is
still throttled, the request is taken when the throttle ends, and later requests of the connection follow; so
a limit that is too low produces a growing backlog. Service times of the broker stay as recorded, and so do
the times of requests on connections that do not wait.

A connection waits only for throttle times that its own responses told. Charges happen at the same moments as
in `proxy.connection`:

* Produce is charged when the request is taken.
* A fetch is charged when its response begins. A connection has one fetch in flight at a time. If the
  budget is throttled by then, because of any connection, the response has no records: it tells the remaining
  throttle time, and is not charged. The client fetches the same records again after that time; they exist by
  then, so the response comes at once. A fetch that was recorded without records has no records in the replay
  either: the records are in a later recorded fetch.
* Old reads are charged when the response begins. A connection waits only because of its own response, so
  tailing consumers never wait.
* Share fetches get their records even if the budget is throttled.
* Request time is charged when the response begins. Near the limit, and after a wait, a connection has one
  request in flight at a time.
* Mutations are charged when the request is taken. If a topic is refused (error 89), the client tries again
  after the throttle time, like Java's client.

The replay adds no hold of the first request of a new connection; the recorded times contain such holds.

A client gives up a request that has waited longer than the client's patience; the request is not charged.

>>> replay = Replay(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
>>> replay.feed([0, 1, 2], [0] * 3, [6102.0] * 3, [7] * 3, [0] * 3, [0] * 3)  # three requests at once
>>> [(hour.violations, hour.throttle_ms) for hour in replay.finish()]  # 2204 and 8102, as at a broker
[(2, 10305)]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Final, TypeAlias

from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.replay_hours import Hour, Hours
from weir.quotas.replay_rules import ChargeRules, ReplayedLimiters, ReplayedMember
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_table import QuotaKey

PATIENCE_MS: Final = 120_000
"""Time (ms) after which a client gives up a request: the default of `delivery.timeout.ms` of Java's producer.
"""
CONNECTIONS_MAX = 100_000
"""Number of connections at which the replay removes the connections that are silent for `IDLE_MS`."""
IDLE_MS: Final = 3_600_000
"""Time (ms) of silence after which a connection may be forgotten."""
NEVER: Final = 2**62
"""Time (ms) that is later than every event of a replay."""
WAKE, _CHARGE = 0, 1
"""Kinds of events. At equal times, a connection's wait ends (0) before a request is charged (1)."""

Asked: TypeAlias = tuple[int, int, float, int, int, int]
"""One recorded request: (time in ms at which it was taken from its connection; service time in ms; units
charged; number of its connection; recorded throttle time in ms; note). The note is the API key for request
time and fetches; for mutations it is 1 if topics may be refused (strict), else 0.
"""


def rank(asked: Asked) -> int:
    """Return a number that sorts requests of the same ms by the order of their charges. The sort key is the
    recorded throttle time, because the throttle times of successive charges grow. A request without a charge
    comes after the charged request with the same throttle time, whose rest it was told.
    """
    return 2 * asked[4] + (not asked[2])


class ReplayedConnection:
    """Simulated state of one recorded connection: requests in flight, waiting requests, and the throttle."""

    __slots__ = ("in_flight", "rules", "seen_ms", "serial", "turn_ms", "until_ms", "waiting", "wake_ms")

    def __init__(self, rules: ChargeRules) -> None:
        self.rules = rules
        self.until_ms = 0
        """Time (ms) until which the connection is throttled; no request is taken before."""
        self.turn_ms = 0
        """Time (ms) at which the throttle ends that its latest fetch without records has met; 0 before."""
        self.serial = False
        """True while no other request is taken, because the request in flight must be answered first, or a
        fetch waits to be repeated.
        """
        self.in_flight = 0
        """Number of requests that were taken but are not yet answered."""
        self.waiting: deque[Asked] = deque()
        """Requests that the client has sent but that are not yet taken, oldest first."""
        self.wake_ms = -1
        """Time (ms) of the `WAKE` event that was last added to the replay's heap for this connection; -1
        before the first.
        """
        self.seen_ms = 0
        """Time (ms) of the latest recorded request."""


class Replay:
    """Simulation of one budget under another limit, and of the connections whose requests were charged to the
    budget.
    """

    __slots__ = (
        "_busy_until_ms",
        "_connections",
        "_connections_max",
        "_heap",
        "_limiters",
        "_members",
        "_next_ms",
        "_number",
        "_patience_ms",
        "_throttle_ms_max",
        "hours",
    )

    def __init__(
        self,
        key: QuotaKey,
        limit: float,
        *,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        patience_ms: int = PATIENCE_MS,
        throttle_ms_max: int = INT32_MAX,
        pacing: Pacing = Pacing.KAFKA,
        members: Mapping[int, ReplayedMember] = MappingProxyType({}),
    ) -> None:
        """Begin without usage.

        `limit` is in the unit of `key` per second (percent of one thread for request time). `num_samples` and
        `window_s` are those of Kafka's quota manager for `key`. `patience_ms`: time (ms) after which a client
        gives up a request. `throttle_ms_max`: maximum throttle time (ms). `pacing`: kind of limiter of a
        byte rate. `members`: number of a connection → other limits of its client, if `limit` is a group's; it
        may grow until the connection's first request. Raises KeyError if `key` is not a quota of clients.
        """
        self.hours = Hours()
        self._limiters = ReplayedLimiters(key, limit, num_samples, window_s, pacing)
        self._members = members
        self._patience_ms = patience_ms
        self._throttle_ms_max = throttle_ms_max
        self._connections: dict[int, ReplayedConnection] = {}
        self._connections_max = CONNECTIONS_MAX
        self._heap: list[tuple[int, int, int, int, ReplayedConnection | ChargeRules, Asked | None]] = []
        """Events that are not processed yet: (time in ms, `WAKE` or `_CHARGE`, rank, serial number,
        connection, request). An event of rules wakes the connections in `ChargeRules.again`.
        """
        self._next_ms = NEVER
        self._number = 0
        self._busy_until_ms = 0
        """Time (ms) at which the latest throttle of any connection ends."""

    def feed(
        self,
        at_ms: Sequence[int],
        service_ms: Sequence[int],
        values: Sequence[float],
        connections: Sequence[int],
        recorded_ms: Sequence[int],
        notes: Sequence[int],
    ) -> None:
        """Simulate recorded requests, given as columns; `Asked` explains the columns. `at_ms` must ascend,
        also between calls. Requests taken in the same ms must be in the order of `rank`, which is the order
        of their charges.
        """
        self.run(zip(at_ms, service_ms, values, connections, recorded_ms, notes, strict=True))

    def run(self, rows: Iterable[Asked]) -> None:
        """Simulate recorded requests, as `feed` does for columns."""
        known = self._connections
        for asked in rows:
            now_ms = asked[0]
            if self._next_ms <= now_ms:
                self._process_events(now_ms, rank(asked))
            connection = known.get(asked[3])
            if connection is None:
                connection = self._meet(asked[3], now_ms)
            connection.seen_ms = now_ms
            if connection.until_ms > now_ms or connection.serial or connection.waiting:
                self._hold(connection, asked, now_ms)
            else:
                connection.rules.begin(self, connection, asked, now_ms)

    def take(self) -> list[Hour]:
        """Return the results of the hours that are over, and remove them from this object."""
        return self.hours.take()

    def finish(self) -> list[Hour]:
        """Process all events that are left, and return the hours that `take` has not returned."""
        self._process_events(NEVER, 0)
        return self.hours.take(over=True)

    def is_idle(self, now_ms: int) -> bool:
        """Process the events before `now_ms`, and return True if no throttle, request or charge is left that
        could matter for a request at `now_ms`. Requests before `now_ms` must have been fed.
        """
        self._process_events(now_ms, 0)
        return not self._heap and self._busy_until_ms <= now_ms and self._limiters.is_idle(now_ms)

    # Called by the rules

    def throttle(
        self, connection: ReplayedConnection, wait_ms: int, now_ms: int, from_ms: int, told_ms: int | None
    ) -> None:
        """Throttle a connection for `wait_ms` from `from_ms` on, because of a charge at `now_ms`. Count a
        violation of `told_ms` in the hours; None if only other limits than the replayed one cause the wait.
        """
        wait_ms = min(wait_ms, self._throttle_ms_max)
        if told_ms is not None:
            self.hours.violated(min(told_ms, self._throttle_ms_max), now_ms, from_ms)
        connection.until_ms = max(connection.until_ms, from_ms + wait_ms)
        if connection.until_ms > self._busy_until_ms:
            self._busy_until_ms = connection.until_ms

    def await_answer(
        self, connection: ReplayedConnection, asked: Asked, now_ms: int, *, serial: bool
    ) -> None:
        """Put a request in flight, to be charged when its response begins. `serial`: True to take no other
        request of the connection until then.
        """
        service_ms = asked[1]
        if not (service_ms or connection.in_flight):
            connection.rules.answered(self, connection, asked, now_ms)
            return
        connection.in_flight += 1
        connection.serial = connection.serial or serial
        self._push(now_ms + service_ms, _CHARGE, rank(asked), connection, asked)

    def ask_again(self, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        """Put a refused request first in its connection's queue, so that the client repeats the request when
        the connection's throttle is over.
        """
        connection.until_ms = max(connection.until_ms, now_ms + 1)
        connection.waiting.appendleft(asked)
        self._resume(connection, now_ms)

    def fetch_again(self, connection: ReplayedConnection, asked: Asked) -> None:
        """Put a fetch that was answered without records first in its connection's queue, to be repeated when
        the budget's throttle is over. Its records exist by then, so its service time is 0.
        """
        at_ms, _service_ms, value, number, recorded_ms, api_key = asked
        connection.waiting.appendleft((at_ms, 0, value, number, recorded_ms, api_key))
        until_ms = connection.until_ms
        rules = connection.rules
        if until_ms != rules.over_until_ms:  # the told throttle time was capped
            connection.wake_ms = until_ms
            self._push(until_ms, WAKE, 0, connection, None)
            return
        connection.serial = True
        if not rules.again:
            self._wake_fetches_at(rules, until_ms)
        rules.again.append(connection)

    def _wake_fetches_at(self, rules: ChargeRules, when_ms: int) -> None:
        rules.again_ms = when_ms
        self._push(when_ms, WAKE, 0, rules, None)

    # Events

    def _process_events(self, now_ms: int, rank: int) -> None:
        """Process the events that come before a request that was taken at `now_ms`: earlier ones, and those
        of the same ms with a lower rank than `rank`.
        """
        heap = self._heap
        while heap:
            when_ms, what, its_rank, _number, connection, asked = heap[0]
            if when_ms >= now_ms and (when_ms > now_ms or (what == _CHARGE and its_rank >= rank)):
                break
            heappop(heap)
            if isinstance(connection, ChargeRules):
                self._wake_fetches(connection, when_ms)
                continue
            if asked is None:
                self._wake(connection, what, its_rank, when_ms)
                continue
            connection.in_flight -= 1
            connection.serial = connection.serial and connection.in_flight > 0
            connection.rules.answered(self, connection, asked, when_ms)
            if connection.waiting:
                self._resume(connection, when_ms)
        self._next_ms = heap[0][0] if heap else NEVER

    def _wake(self, connection: ReplayedConnection, _what: int, _number: int, now_ms: int) -> None:
        """Process an event without a request; subclasses have more kinds (`_what`) of such events."""
        self._resume(connection, now_ms)

    def _wake_fetches(self, rules: ChargeRules, now_ms: int) -> None:
        """Let the connections in `rules.again` repeat their fetches, one after the other, until their line is
        longer than a window. The other connections are throttled again, all for the same time.
        """
        again, rules.again = rules.again, deque()
        while again and (
            rules.closed_until_ms(in_line=True) <= now_ms or self._is_too_old(again[0].waiting[0], now_ms)
        ):
            connection = again.popleft()
            connection.serial = False
            self._resume(connection, now_ms)
        if again:
            rest_ms = min(rules.over_until_ms - now_ms, self._throttle_ms_max)
            told_ms = min(rules.counted_until_ms - now_ms, rest_ms)
            self.hours.count(0.0, now_ms, len(again))
            if told_ms > 0:
                self.hours.violated(told_ms, now_ms, now_ms, len(again))
            if not rules.again:
                self._wake_fetches_at(rules, now_ms + rest_ms)
            again.extend(rules.again)
            rules.again = again

    def _is_too_old(self, asked: Asked, now_ms: int) -> bool:
        """Return True if the client has given up this request."""
        return asked[0] + self._patience_ms < now_ms

    def _hold(self, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        """Append a request to its connection's queue; drop the oldest requests there that the client has
        given up.
        """
        waiting = connection.waiting
        waiting.append(asked)
        while self._is_too_old(waiting[0], now_ms):
            waiting.popleft()
            self.hours.gave_up(now_ms)
        if len(waiting) == 1:
            self._resume(connection, now_ms)

    def _resume(self, connection: ReplayedConnection, now_ms: int) -> None:
        """Take requests from the connection's queue until the connection is throttled, or must wait for a
        response (`serial`). If it is throttled, add an event that calls this method at the end of the
        throttle.
        """
        waiting = connection.waiting
        while waiting and not connection.serial:
            until_ms = connection.until_ms
            if until_ms > now_ms:
                if connection.wake_ms != until_ms:
                    connection.wake_ms = until_ms
                    self._push(until_ms, WAKE, 0, connection, None)
                return
            asked = waiting.popleft()
            if self._is_too_old(asked, now_ms):
                self.hours.gave_up(now_ms)
                continue
            connection.rules.begin(self, connection, asked, now_ms)
            if asked[0] < now_ms and connection.in_flight:  # clients do not send a backlog at once
                connection.serial = True

    def _push(
        self,
        when_ms: int,
        what: int,
        rank: int,
        whose: ReplayedConnection | ChargeRules,
        asked: Asked | None,
    ) -> None:
        self._number += 1
        heappush(self._heap, (when_ms, what, rank, self._number, whose, asked))
        self._next_ms = min(self._next_ms, when_ms)

    def _meet(self, name: int, now_ms: int) -> ReplayedConnection:
        """Add a connection, with the recorded number `name`. If there are `CONNECTIONS_MAX` or more, first
        remove the connections that are silent for `IDLE_MS`.
        """
        if len(self._connections) >= self._connections_max:
            gone = [
                name
                for name, one in self._connections.items()
                if one.seen_ms + IDLE_MS < now_ms and not (one.waiting or one.in_flight)
            ]
            for silent in gone:
                if self._connections[silent].until_ms <= now_ms:
                    del self._connections[silent]
            self._connections_max = max(CONNECTIONS_MAX, 2 * len(self._connections))
        rules = self._limiters.rules(self._members.get(name))
        connection = self._connections[name] = ReplayedConnection(rules)
        return connection
