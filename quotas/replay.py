"""What-if: recorded requests against a budget with another limit, and clients that wait when they are told.

One `Replay` is one budget. It is fed what was charged, in the order in which the requests were taken, and
computes with the classes that enforce the quota who would have had to wait, and for how long. A request whose
connection would still be waiting is taken when that is over, those behind it after it; so the backlog of a
limit that is too low grows. How long a broker takes to answer stays as recorded, and so does when clients
that do not wait ask.

A connection waits for throttle times that it was told, and for no others. When a request is charged is as in
`proxy.connection`:

* Produce is charged when it is taken.
* A fetch is charged when its response begins. One of a connection is under way at a time. If the budget is
  throttled by then, whoever caused that, the response has no records: it tells the rest of the throttle time,
  and is not charged. Its client fetches the same records again when that time is over; they are there by
  then, so they come at once. A fetch that was answered without records when it was recorded brings none here
  either: the records came with a later one, which is fed too.
* Share fetches, and all fetches in hold mode, get their records whatever was charged.
* Request time is charged when the response begins. Near the limit, and of those that had to wait, one request
  of a connection is under way at a time.
* Mutations are charged when they are taken. Where a topic is refused (error 89), the client asks again after
  the throttle time, as Java's does.

That the first request of a new connection may be held for some seconds is not replayed: it is in the recorded
times where it happened.

A request that has waited longer than its client is patient is given up: nobody is charged for it.

>>> replay = Replay(QuotaKey.PRODUCER_BYTE_RATE, 1000.0)
>>> replay.feed([0, 1, 2], [0] * 3, [6102.0] * 3, [7] * 3, [0] * 3, [0] * 3)  # three requests at once
>>> [(hour.violations, hour.throttle_ms) for hour in replay.finish()]  # 2204 and 8102, as at a broker
[(2, 10305)]
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol, TypeAlias

from quotas.entities import Tags
from quotas.limiters.budgets import Budget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.smooth import paced
from quotas.limiters.throttle import INT32_MAX
from quotas.mutations import MutationBudget
from quotas.options import Pacing
from quotas.replay_hours import Hour, Hours
from quotas.request_time import RequestBudget
from quotas.table import QuotaKey

PATIENCE_MS: Final = 120_000
"""`delivery.timeout.ms` of Java's producer."""
CONNECTIONS_MAX: Final = 100_000
"""More than so many are not remembered after they have been silent for an hour."""
IDLE_MS: Final = 3_600_000
NEVER: Final = 2**62
SHARE_FETCH: Final = 78
"""The API key of fetches that acquire records (KIP-932)."""
_WAKE, _CHARGE = 0, 1
"""At one moment waits end before anything is charged."""
_NOBODY: Final = Tags("", "")

Asked: TypeAlias = tuple[int, int, float, int, int, int]
"""One request: when it was taken (ms), how much later it was answered (ms), what it was charged, its
connection, the throttle time that was recorded (ms), a note: the API of request time and of fetches, of
mutations whether topics are refused (1, strict).
"""


def rank(asked: Asked) -> int:
    """Where a request belongs among those that were answered in the same ms: the throttle times of charges
    grow, and requests that are not charged are told the last of them.
    """
    return 2 * asked[4] + (not asked[2])


class Connection:
    """Of a client, as far as one budget knows it."""

    __slots__ = ("alone", "seen_ms", "under_way", "until_ms", "waiting", "wake_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        """Time (ms) before which no request is taken."""
        self.alone = False
        """True while no request is taken because one is under way, or waits to be fetched again."""
        self.under_way = 0
        self.waiting: deque[Asked] = deque()
        self.wake_ms = -1
        self.seen_ms = 0


class _Kind(Protocol):
    """How one kind of budget is charged, and when its clients wait."""

    @property
    def over_until_ms(self) -> int:
        """Time (ms) until which requests are told to wait and are not charged."""

    def begin(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        """A request is taken: charge it, or wait for its answer."""

    def answered(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        """Its response begins: charge it."""


class _Produce:
    """Charged when it is taken."""

    __slots__ = ("_budget",)

    def __init__(self, limit: float, num_samples: int, window_s: int, pacing: Pacing) -> None:
        self._budget = paced(Budget(_NOBODY, limit, 0, num_samples=num_samples, window_s=window_s), pacing)

    def begin(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        value = asked[2]
        replay.hours.count(value, now_ms)
        wait_ms = self._budget.charge(value, now_ms)
        if wait_ms:
            replay.throttle(connection, wait_ms, now_ms, now_ms)

    answered = begin

    @property
    def over_until_ms(self) -> int:
        return 0


class _HeldFetches(_Produce):
    """Charged when they are answered, one of a connection at a time."""

    __slots__ = ()

    def begin(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        replay.await_answer(connection, asked, now_ms, alone=True)


class _Fetches(_HeldFetches):
    """Answered without records while the budget is throttled."""

    __slots__ = ()

    def answered(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        rest_ms = 0 if asked[5] == SHARE_FETCH else self.over_until_ms - now_ms
        if asked[2] and rest_ms <= 0:
            super().answered(replay, connection, asked, now_ms)
            return
        replay.hours.count(0.0, now_ms)
        if rest_ms > 0:
            replay.throttle(connection, rest_ms, now_ms, now_ms)
            if asked[2]:
                replay.fetch_again(connection, asked)

    @property
    def over_until_ms(self) -> int:
        return self._budget.throttled_until_ms


class _Time:
    """Charged when the request is answered."""

    __slots__ = ("_budget",)
    over_until_ms = 0

    def __init__(self, limit: float, num_samples: int, window_s: int, _pacing: Pacing) -> None:
        self._budget = RequestBudget(_NOBODY, limit, 0, num_samples=num_samples, window_s=window_s)

    def begin(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        replay.await_answer(connection, asked, now_ms, alone=self._budget.near)

    def answered(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        percent = asked[2]
        replay.hours.count(percent, now_ms)
        wait_ms = self._budget.charge_api(asked[5], percent, now_ms)
        if wait_ms:
            replay.throttle(connection, wait_ms, now_ms, now_ms)


class _Mutations:
    """Charged when the request is taken; the wait begins when it is answered."""

    __slots__ = ("_budget",)
    over_until_ms = 0

    def __init__(self, limit: float, num_samples: int, window_s: int, _pacing: Pacing) -> None:
        self._budget = MutationBudget(_NOBODY, limit, 0, num_samples=num_samples, window_s=window_s)

    def begin(self, replay: Replay, connection: Connection, asked: Asked, now_ms: int) -> None:
        _at, service_ms, cost, _connection, recorded_ms, strict = asked
        request = self._budget.begin(strict=strict != 0)
        admitted = not cost or request.admit(cost, now_ms)
        refused = not admitted
        if admitted and strict and recorded_ms:  # it asked for more; all that is known is that it was refused
            refused = not request.admit(0.0, now_ms)
        replay.hours.count(cost if admitted else 0.0, now_ms)
        answered_ms = now_ms + service_ms
        wait_ms = request.finish(answered_ms)
        if wait_ms or refused:
            replay.throttle(connection, wait_ms, now_ms, answered_ms)
        if not admitted:
            replay.ask_again(connection, asked, now_ms)

    answered = begin


_KINDS: Final[dict[QuotaKey, Callable[[float, int, int, Pacing], _Kind]]] = {
    QuotaKey.PRODUCER_BYTE_RATE: _Produce,
    QuotaKey.CONSUMER_BYTE_RATE: _Fetches,
    QuotaKey.REQUEST_PERCENTAGE: _Time,
    QuotaKey.CONTROLLER_MUTATION_RATE: _Mutations,
}


class Replay:
    """One budget and its clients, from nothing used on."""

    __slots__ = (
        "_again",
        "_connections",
        "_connections_max",
        "_heap",
        "_kind",
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
        hold: bool = False,
        pacing: Pacing = Pacing.KAFKA,
    ) -> None:
        """`limit` is in the unit of `key`; the numbers are those of the budgets of this key. Nobody is told a
        longer throttle time than `throttle_ms_max`. `hold`: True if the throttle mode is that. `pacing`: of
        a byte rate. Raises KeyError if it is not a quota of clients.
        """
        self.hours = Hours()
        kind = _HeldFetches if hold and key is QuotaKey.CONSUMER_BYTE_RATE else _KINDS[key]
        self._kind = kind(limit, num_samples, window_s, pacing)
        self._patience_ms = patience_ms
        self._throttle_ms_max = throttle_ms_max
        self._connections: dict[int, Connection] = {}
        self._connections_max = CONNECTIONS_MAX
        self._heap: list[tuple[int, int, int, int, Connection | None, Asked | None]] = []
        """What is to come: (when, wake or charge, rank, number, connection, request). Without a connection:
        wake those of `_again`.
        """
        self._next_ms = NEVER
        self._number = 0
        self._again: deque[Connection] = deque()
        """Connections that fetch the same once more when the budget's throttle time is over. They may be
        many, and all but one be told again to wait: they have one place in the heap together.
        """

    def feed(
        self,
        at_ms: Sequence[int],
        service_ms: Sequence[int],
        values: Sequence[float],
        connections: Sequence[int],
        recorded_ms: Sequence[int],
        notes: Sequence[int],
    ) -> None:
        """Take requests, `at_ms` in ascending order, also from one call to the next; see `Asked`.

        Where several were taken in one ms, give them by `rank`: that tells the order in which they were
        charged.
        """
        known = self._connections
        for asked in zip(at_ms, service_ms, values, connections, recorded_ms, notes, strict=True):
            now_ms = asked[0]
            if self._next_ms <= now_ms:
                self._go_on(now_ms, rank(asked))
            connection = known.get(asked[3])
            if connection is None:
                connection = self._meet(asked[3], now_ms)
            connection.seen_ms = now_ms
            if connection.until_ms > now_ms or connection.alone or connection.waiting:
                self._hold(connection, asked, now_ms)
            else:
                self._kind.begin(self, connection, asked, now_ms)

    def take(self) -> list[Hour]:
        """Take the hours that are over."""
        return self.hours.take()

    def finish(self) -> list[Hour]:
        """No more is to come: let all waits end; return the hours that were not taken."""
        self._go_on(NEVER, 0)
        return self.hours.take(over=True)

    # What kinds of budgets use

    def throttle(self, connection: Connection, wait_ms: int, now_ms: int, from_ms: int) -> None:
        """A request was told at `now_ms` to wait, from `from_ms` on."""
        wait_ms = min(wait_ms, self._throttle_ms_max)
        self.hours.violated(wait_ms, now_ms, from_ms)
        connection.until_ms = max(connection.until_ms, from_ms + wait_ms)

    def await_answer(self, connection: Connection, asked: Asked, now_ms: int, *, alone: bool) -> None:
        """The request is under way; what it costs is charged when it is answered."""
        service_ms = asked[1]
        if not (service_ms or connection.under_way):
            self._kind.answered(self, connection, asked, now_ms)
            return
        connection.under_way += 1
        connection.alone = connection.alone or alone
        self._push(now_ms + service_ms, _CHARGE, rank(asked), connection, asked)

    def ask_again(self, connection: Connection, asked: Asked, now_ms: int) -> None:
        """The client asks the same once more when its wait is over."""
        connection.until_ms = max(connection.until_ms, now_ms + 1)
        connection.waiting.appendleft(asked)
        self._resume(connection, now_ms)

    def fetch_again(self, connection: Connection, asked: Asked) -> None:
        """The client fetches the same records once more when the budget's throttle time is over. They are
        there by then, so they come at once.
        """
        at_ms, _service_ms, value, number, recorded_ms, api_key = asked
        connection.waiting.appendleft((at_ms, 0, value, number, recorded_ms, api_key))
        until_ms = connection.until_ms
        if until_ms != self._kind.over_until_ms:  # it was not told the whole rest
            connection.wake_ms = until_ms
            self._push(until_ms, _WAKE, 0, connection, None)
            return
        connection.alone = True
        if not self._again:
            self._push(until_ms, _WAKE, 0, None, None)
        self._again.append(connection)

    # What happens by and by

    def _go_on(self, now_ms: int, rank: int) -> None:
        """Do what is due before a request of this rank that was taken at `now_ms`."""
        heap = self._heap
        while heap:
            when_ms, what, its_rank, _number, connection, asked = heap[0]
            if when_ms >= now_ms and (when_ms > now_ms or (what == _CHARGE and its_rank >= rank)):
                break
            heappop(heap)
            if connection is None:
                self._wake_fetches(when_ms)
                continue
            if asked is None:
                self._resume(connection, when_ms)
                continue
            connection.under_way -= 1
            connection.alone = connection.alone and connection.under_way > 0
            self._kind.answered(self, connection, asked, when_ms)
            if connection.waiting:
                self._resume(connection, when_ms)
        self._next_ms = heap[0][0] if heap else NEVER

    def _wake_fetches(self, now_ms: int) -> None:
        """Let connections fetch again, one after the other, until one of them has exceeded the quota; the
        others are told to wait again, all for the same time.
        """
        again, self._again = self._again, deque()
        kind = self._kind
        while again and (kind.over_until_ms <= now_ms or self._is_too_old(again[0].waiting[0], now_ms)):
            connection = again.popleft()
            connection.alone = False
            self._resume(connection, now_ms)
        if again:
            rest_ms = min(kind.over_until_ms - now_ms, self._throttle_ms_max)
            self.hours.count(0.0, now_ms, len(again))
            self.hours.violated(rest_ms, now_ms, now_ms, len(again))
            if not self._again:
                self._push(now_ms + rest_ms, _WAKE, 0, None, None)
            again.extend(self._again)
            self._again = again

    def _is_too_old(self, asked: Asked, now_ms: int) -> bool:
        """Return whether the client has given this request up."""
        return asked[0] + self._patience_ms < now_ms

    def _hold(self, connection: Connection, asked: Asked, now_ms: int) -> None:
        """A request has to wait."""
        waiting = connection.waiting
        waiting.append(asked)
        while self._is_too_old(waiting[0], now_ms):
            waiting.popleft()
            self.hours.gave_up(now_ms)
        if len(waiting) == 1:
            self._resume(connection, now_ms)

    def _resume(self, connection: Connection, now_ms: int) -> None:
        """Take what waits, as far as that may be taken now; look again when more may be."""
        waiting = connection.waiting
        while waiting and not connection.alone:
            until_ms = connection.until_ms
            if until_ms > now_ms:
                if connection.wake_ms != until_ms:
                    connection.wake_ms = until_ms
                    self._push(until_ms, _WAKE, 0, connection, None)
                return
            asked = waiting.popleft()
            if self._is_too_old(asked, now_ms):
                self.hours.gave_up(now_ms)
                continue
            self._kind.begin(self, connection, asked, now_ms)
            if asked[0] < now_ms and connection.under_way:  # nobody sends a backlog all at once
                connection.alone = True

    def _push(
        self, when_ms: int, what: int, rank: int, whose: Connection | None, asked: Asked | None
    ) -> None:
        self._number += 1
        heappush(self._heap, (when_ms, what, rank, self._number, whose, asked))
        self._next_ms = min(self._next_ms, when_ms)

    def _meet(self, name: int, now_ms: int) -> Connection:
        """A connection that is not known yet; those that are long silent are forgotten if there are many."""
        if len(self._connections) >= self._connections_max:
            gone = [
                name
                for name, one in self._connections.items()
                if one.seen_ms + IDLE_MS < now_ms and not (one.waiting or one.under_way)
            ]
            for silent in gone:
                if self._connections[silent].until_ms <= now_ms:
                    del self._connections[silent]
            self._connections_max = max(CONNECTIONS_MAX, 2 * len(self._connections))
        connection = self._connections[name] = Connection()
        return connection
