"""Replay of clients whose demand the recorded quotas held back: a range, from models of their demand.

A client that was told to wait has sent less than it would have sent otherwise, so its recorded requests do
not tell its demand. A `RangedReplay` simulates one budget with several models of such clients:

* `open` (`Replay`): the recorded times are the demand. Requests that must wait become a backlog.
* `paced` (`PacedReplay`): a client that waits leaves out the requests of this time, and pauses after the wait
  for as long as in the recording. No client demands less.
* `greedy` (`GreedyReplay`): a client that was held back sends again as soon as it may, as fast as its broker
  answered (closed loop). No client with these connections and requests demands more.

The result of an hour is the range of the models. Under a limit above the one in force, the range begins at 0:
a client's demand may be anywhere above its recorded use. If a greedy client would need more than
`SENT_PER_RECORDED` times its recorded requests, the recording does not tell what the client could do: the
result of this hour is unknown.

Clients that were not held back are simulated at their recorded times by each model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from weir.quotas.replay import NEVER, WAKE, Asked, Replay, ReplayedConnection, rank
from weir.quotas.replay_hours import HOUR_MS, Hour

RECORDED: Final = "recorded"
"""Demand of an hour in which no client was held back: its recorded requests. The bounds are equal."""
HELD_BACK: Final = "held back"
"""Demand of an hour in which quotas held clients back; the bounds are those of the models."""
UNKNOWN: Final = "unknown"
"""Demand of an hour in which clients were held back, and for which the models have no upper bound."""
IDLE_MS: Final = 5_000
"""Time (ms) without a recorded request, from the end of a client's wait, after which the client is no longer
held back: by then it has sent everything that it had to send.
"""
SAMPLES: Final = 64
"""Number of latest recorded requests of a connection that a greedy client repeats."""
SENT_PER_RECORDED: Final = 10
"""Maximum number of requests that greedy clients send in an hour per recorded request of the hour."""
SENT_AT_LEAST: Final = 1_000
"""Number of requests that greedy clients may send in any hour, however few were recorded."""
ROOM: Final = 0.1
"""Share by which the range of the models is widened, because clients do not repeat their requests exactly."""
HASTE: Final = 0.5
"""Time until the response for a greedy client, as a share of the recorded time: it may be shorter at another
time.
"""
_SEND: Final = 2
"""Kind of the event that a greedy client sends. It comes after the other events of its ms."""


class Outlook:
    """Result of one hour of a budget."""

    __slots__ = ("demand", "hour", "throttle_ms", "throttled_ms")

    def __init__(self, hour: Hour, demand: str, models: Sequence[Hour] = (), clients: int = 0) -> None:
        """Compute the bounds from the hour of the recorded requests and those of other models.

        The bounds leave room for one throttle time at the end for each of `clients` connections.
        """
        self.hour = hour
        """Result for the recorded requests (model `open`)."""
        self.demand = demand
        """One of `RECORDED`, `HELD_BACK` and `UNKNOWN`."""
        last_ms = max((one.longest_ms for one in models), default=0)
        self.throttle_ms: tuple[int, int] | None = hour.throttle_ms, hour.throttle_ms
        """Lower and upper bound of the sum of the throttle times (ms); None if unknown."""
        self.throttled_ms: tuple[int, int] | None = hour.throttled_ms, hour.throttled_ms
        """Lower and upper bound of the time (ms) during which any client waits; None if unknown."""
        if demand == UNKNOWN:
            self.throttle_ms = self.throttled_ms = None
        elif demand == HELD_BACK:
            both = (hour, *models)
            self.throttle_ms = _around([one.throttle_ms for one in both], clients * last_ms)
            self.throttled_ms = _around([one.throttled_ms for one in both], last_ms)


def _around(values: list[int], room: int) -> tuple[int, int]:
    """Return the range of the values, widened on both sides by `room`, and by `ROOM` of the value."""
    least, most = min(values), max(values)
    return max(least - room - int(ROOM * least), 0), most + room + int(ROOM * most)


class RecordedClient:
    """Recorded behaviour of one connection: whether quotas hold it back, and its latest requests."""

    __slots__ = (
        "asked",
        "at_ms",
        "gap_ms",
        "held",
        "index",
        "number",
        "overlap",
        "sending",
        "took_ms",
        "until_ms",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.held = False
        """True from a request that was told to wait until the connection is idle for `IDLE_MS`."""
        self.sending = False
        """True while an event exists for the connection's next request of the greedy model."""
        self.at_ms = 0
        """Time (ms) of the latest recorded request."""
        self.gap_ms = 0
        """Time (ms) from the end of the wait before the latest recorded request to this request."""
        self.until_ms = -IDLE_MS - 1
        """Time (ms) at which the latest recorded request was answered and its wait was over."""
        self.asked: list[Asked] = []
        """Latest requests with a charge."""
        self.took_ms: list[int] = []
        """Time (ms) until the response of each of these requests."""
        self.overlap = 1.0
        """Smallest time from a request to the next, as a share of the time until its response; below 1 if
        the client has several requests in flight.
        """
        self.index = 0

    def see(self, asked: Asked, took_ms: int, waited_ms: int, always: bool) -> bool:
        """Note a recorded request, which was answered after `took_ms` and told to wait for `waited_ms`.
        Return True if the connection was held back already: then the request's time tells no demand.

        `always`: True if the connection is held back even if it was told no throttle time.
        """
        at_ms = asked[0]
        held = self.held and at_ms - self.until_ms <= IDLE_MS
        if self.took_ms and at_ms - self.at_ms < self.took_ms[-1] * self.overlap:
            self.overlap = (at_ms - self.at_ms) / self.took_ms[-1]
        if asked[2] > 0:
            if len(self.asked) >= SAMPLES:
                del self.asked[0], self.took_ms[0]
            self.asked.append(asked)
            self.took_ms.append(took_ms)
        self.gap_ms = min(max(at_ms - self.until_ms, 0), IDLE_MS)
        self.at_ms = at_ms
        self.until_ms = max(self.until_ms, at_ms + max(took_ms, waited_ms))
        self.held = held or waited_ms > 0 or always
        return held

    def step_ms(self, index: int) -> int:
        """Return the time (ms) from the request with this index to the next if the client need not wait."""
        return max(int(self.took_ms[index] * self.overlap * HASTE), 1)


class PacedReplay(Replay):
    """Replay in which connections build up no backlog: a connection that waits leaves out the recorded
    requests of this time. After the wait it pauses for as long as in the recording.
    """

    __slots__ = ("_always", "_clients")

    def prepare(self, always: bool) -> None:
        """Begin to observe connections. `always`: True if all of them are held back all the time."""
        self._clients: dict[int, RecordedClient] = {}
        self._always = always

    def see(self, rows: Sequence[Asked], took_ms: Sequence[int], waited_ms: Sequence[int]) -> None:
        """Simulate recorded requests in order of time, as for `feed`. `took_ms` is the time (ms) until each
        response, `waited_ms` the longest throttle time (ms) that any quota told it.
        """
        for asked, took, waited in zip(rows, took_ms, waited_ms, strict=True):
            now_ms = asked[0]
            if self._next_ms <= now_ms:
                self._process_events(now_ms, rank(asked))
            number = asked[3]
            connection = self._connections.get(number)
            if connection is None:
                connection = self._meet(number, now_ms)
            connection.seen_ms = now_ms
            client = self._clients.get(number)
            if client is None:
                client = self._clients[number] = RecordedClient(number)
            self._observed(connection, client, asked, client.see(asked, took, waited, self._always))

    @property
    def clients(self) -> int:
        """Number of connections seen so far."""
        return len(self._clients)

    def _observed(
        self,
        connection: ReplayedConnection,
        client: RecordedClient,
        asked: Asked,
        held: bool,  # noqa: ARG002  # greedy clients need it
    ) -> None:
        """Simulate one recorded request. `held`: True if its connection was held back before it."""
        until_ms = connection.until_ms
        if not (self._is_busy(connection, asked[0]) or (until_ms and until_ms + client.gap_ms > asked[0])):
            connection.rules.begin(self, connection, asked, asked[0])

    def _arrive(self, connection: ReplayedConnection, asked: Asked) -> None:
        """Simulate a request at its recorded time, or put it into its connection's queue."""
        if self._is_busy(connection, asked[0]):
            self._hold(connection, asked, asked[0])
        else:
            connection.rules.begin(self, connection, asked, asked[0])

    def _is_busy(self, connection: ReplayedConnection, now_ms: int) -> bool:
        """Return True if the connection must wait, for a throttle or for earlier requests."""
        return connection.until_ms > now_ms or connection.serial or bool(connection.waiting)


class GreedyReplay(PacedReplay):
    """Replay in which connections that were held back send as fast as they may, with the sizes and the
    service times of their latest recorded requests.
    """

    __slots__ = ("_end_ms", "_hour_ms", "_recorded", "_sent", "unknown")

    def begin(self, end_ms: int) -> None:
        """Begin without clients that send; they will not send later than `end_ms`, the end of the recording
        (ms).
        """
        self._end_ms = end_ms
        self._hour_ms = -1
        self._recorded = self._sent = 0
        self.unknown: set[int] = set()
        """Hours (ms of their beginning) in which clients would send too many requests."""

    def _observed(
        self, connection: ReplayedConnection, client: RecordedClient, asked: Asked, held: bool
    ) -> None:
        now_ms = asked[0]
        self._turn(now_ms)
        self._recorded += 1
        if not (held and client.asked):
            self._arrive(connection, asked)
        if client.held and client.asked and not client.sending:
            client.sending = True
            first_ms = now_ms if held else now_ms + client.step_ms(-1)
            self._push(max(first_ms, connection.until_ms), _SEND, client.number, connection, None)

    def throttle(
        self, connection: ReplayedConnection, wait_ms: int, now_ms: int, from_ms: int, told_ms: int | None
    ) -> None:
        """Throttle a connection as in `Replay`; also count the time until a refusal's response as throttled,
        because the connections of other clients are refused at other moments.
        """
        if told_ms is not None:
            self.hours.cover(now_ms, from_ms)
        super().throttle(connection, wait_ms, now_ms, from_ms, told_ms)

    def _wake(self, connection: ReplayedConnection, what: int, number: int, now_ms: int) -> None:
        if what == WAKE:
            self._resume(connection, now_ms)
            return
        client = self._clients[number]
        if now_ms > min(client.until_ms + IDLE_MS, self._end_ms) or self._is_too_much(now_ms):
            client.sending = False
            return
        if not self._is_busy(connection, now_ms):
            index = client.index = (client.index + 1) % len(client.asked)
            _at, service_ms, value, _number, _recorded, note = client.asked[index]
            self._sent += 1
            asked = (now_ms, int(service_ms * HASTE), value, number, 0, note)
            connection.rules.begin(self, connection, asked, now_ms)
            next_ms = now_ms + client.step_ms(index)
        else:
            repeats_fetch = connection.serial and not connection.in_flight
            next_ms = max(now_ms + 1, connection.rules.again_ms if repeats_fetch else 0)
        self._push(max(next_ms, connection.until_ms), _SEND, number, connection, None)

    def _is_too_much(self, now_ms: int) -> bool:
        """Return True if greedy clients have sent as many requests in this hour as they may."""
        self._turn(now_ms)
        if self._sent < SENT_PER_RECORDED * self._recorded + SENT_AT_LEAST:
            return False
        self.unknown.add(self._hour_ms)
        return True

    def _turn(self, now_ms: int) -> None:
        hour_ms = now_ms - now_ms % HOUR_MS
        if hour_ms != self._hour_ms:
            self._hour_ms = hour_ms
            self._recorded = self._sent = 0


class RangedReplay:
    """Simulation of one budget under another limit by all models, for clients that quotas held back."""

    __slots__ = ("_always", "_from_zero", "_greedy", "_held", "_models", "_open")

    def __init__(
        self,
        make: Callable[[type[Replay]], Replay],
        *,
        limit: float,
        in_force: float | None,
        always: bool = False,
        end_ms: int = NEVER,
    ) -> None:
        """Begin without usage.

        `make` returns a replay of a given class without usage; `limit` is its limit. `in_force` is the limit
        of the same budget when the requests were recorded; None if it is unknown, or if other clients shared
        the budget. `always`: True if clients were held back even without throttle times, because they used
        almost all of their quota. `end_ms`: end (ms) of the recording.
        """
        self._open = make(Replay)
        self._greedy = greedy = make(GreedyReplay)
        assert isinstance(greedy, GreedyReplay)
        greedy.begin(end_ms)
        self._models: list[PacedReplay] = [greedy]
        self._from_zero = in_force is None or limit > in_force
        if not self._from_zero:
            paced = make(PacedReplay)
            assert isinstance(paced, PacedReplay)
            self._models.append(paced)
        for model in self._models:
            model.prepare(always)
        self._always = always
        self._held: set[int] = set()
        """Hours (ms of their beginning) in which a client was held back."""

    def feed(
        self,
        at_ms: Sequence[int],
        service_ms: Sequence[int],
        values: Sequence[float],
        connections: Sequence[int],
        recorded_ms: Sequence[int],
        notes: Sequence[int],
        took_ms: Sequence[int],
        waited_ms: Sequence[int],
    ) -> None:
        """Simulate recorded requests, given as columns in the order of `Replay.feed`. `took_ms` has the time
        (ms) until each response, `waited_ms` the longest throttle time (ms) that any quota told it.
        """
        rows = list(zip(at_ms, service_ms, values, connections, recorded_ms, notes, strict=True))
        self._open.run(rows)
        for model in self._models:
            model.see(rows, took_ms, waited_ms)
        for at, waited in zip(at_ms, waited_ms, strict=True):
            if waited or self._always:
                self._held.update(range(at - at % HOUR_MS, at + waited + 1, HOUR_MS))

    def take(self) -> list[Outlook]:
        """Return nothing: the models reach the end of an hour at different times."""
        return []

    def finish(self) -> list[Outlook]:
        """Process all events that are left, and return the results of all hours."""
        opened = {hour.start_ms: hour for hour in self._open.finish()}
        of_models = [{hour.start_ms: hour for hour in model.finish()} for model in self._models]
        starts = sorted(set(opened).union(*of_models))
        return [
            self._outlook(
                opened.get(start, Hour(start)), [hours.get(start, Hour(start)) for hours in of_models]
            )
            for start in starts
        ]

    def _outlook(self, hour: Hour, of_models: list[Hour]) -> Outlook:
        start_ms = hour.start_ms
        greedy = self._models[0]
        assert isinstance(greedy, GreedyReplay)
        if start_ms in greedy.unknown:
            return Outlook(hour, UNKNOWN)
        told = {(one.throttle_ms, one.throttled_ms) for one in (hour, *of_models)}
        if not self._held or (start_ms not in self._held and len(told) == 1):
            return Outlook(hour, RECORDED)
        if self._from_zero:
            of_models.append(Hour(start_ms))
        return Outlook(hour, HELD_BACK, of_models, greedy.clients)
