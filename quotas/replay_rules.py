"""Rules by which a replay charges requests, one class for each kind of quota, and the limiters of groups.

A replay of a group's limit charges each member by the chain of `weir run`: its own limiter, those of the
groups between, the group's, and its floor. So the members' lower limits shape what reaches the group, and the
hours count the waits for the group alone. Limits above the group have members that this replay does not see.
Nor does the replay of a group's limit at one broker see the members' use of other brokers, which counts for
limits and floors of the whole cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.chain import AnyBudget, Chain
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.smooth import paced
from weir.quotas.mutations import MutationBudget, MutationChain
from weir.quotas.table.entities import Tags
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_kind import KINDS, QuotaKey

if TYPE_CHECKING:
    from weir.quotas.replay import Asked, Replay, ReplayedConnection

_ALL_CLIENTS: Final = Tags("", "")


class ReplayedLimit(NamedTuple):
    """A limit that members of a group have below it; equal ones are one budget."""

    tags: Tags
    value: float
    pacing: Pacing = Pacing.KAFKA
    broker: int = -1
    """Broker whose own budget it is; -1 for a budget of all."""

    def at_broker(self, broker: int) -> ReplayedLimit:
        """Return the limit at a broker (-1 if unknown), unless it is one of all."""
        return self if self.broker < 0 else self._replace(broker=broker)


class ReplayedMember(NamedTuple):
    """The limits of one member below the group that is replayed."""

    own: ReplayedLimit | None = None
    groups: tuple[ReplayedLimit, ...] = ()
    floor: ReplayedLimit | None = None

    def at_broker(self, broker: int) -> ReplayedMember:
        """Return the limits of this member at a broker: those with any broker get this one."""
        own, groups, floor = self
        return ReplayedMember(
            own and own.at_broker(broker),
            tuple([each.at_broker(broker) for each in groups]),
            floor and floor.at_broker(broker),
        )


class ChargeRules:
    """Moment at which a request is charged, and the effect of a throttle time, for connections that have the
    same limiters.
    """

    __slots__ = ("again", "again_ms")

    def __init__(self) -> None:
        self.again: deque[ReplayedConnection] = deque()
        """Connections whose fetch was answered without records, to be repeated when the throttle is over. One
        event of the replay wakes all of them, because there may be thousands, and most of them will be
        throttled again.
        """
        self.again_ms = 0
        """Time (ms) of that event."""

    @property
    def over_until_ms(self) -> int:
        """Time (ms) until which the limiters for fetched bytes are throttled; 0 for other kinds of quotas."""
        return 0

    def closed_until_ms(self, *, in_line: bool) -> int:
        """Return the time (ms) until which responses of fetches have no records and are not charged
        (`Budget.closed_until_ms`); 0 for other kinds of quotas.
        """
        del in_line
        return 0

    @property
    def counted_until_ms(self) -> int:
        """Like `over_until_ms`, for the limiter alone whose waits the hours count."""
        return 0

    def begin(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        """Take a request from its connection: charge it at once, or put it in flight, to be charged at its
        response.
        """
        raise NotImplementedError

    def answered(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        """Charge a request whose response begins."""
        raise NotImplementedError


class _ProduceRules(ChargeRules):
    """Each request is charged when it is taken from its connection, which is throttled at once."""

    __slots__ = ("_budget", "_counted", "_floor")

    def __init__(self, budget: AnyBudget, counted: Budget, floor: Budget | None) -> None:
        super().__init__()
        self._budget, self._counted, self._floor = budget, counted, floor

    def begin(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        value = asked[2]
        replay.hours.count(value, now_ms)
        before_ms = self._counted.throttle_ms_total
        wait_ms = self._charge(value, now_ms)
        if wait_ms:
            told_ms = self._counted.throttle_ms_total - before_ms
            replay.throttle(connection, wait_ms, now_ms, now_ms, told_ms or None)

    def _charge(self, value: float, now_ms: int) -> int:
        return self._budget.charge(value, now_ms)

    def answered(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        _ProduceRules.begin(self, replay, connection, asked, now_ms)


class _OldReadRules(_ProduceRules):
    """Each fetch is charged at its response, and a connection has one fetch in flight at a time. A connection
    waits only because of its own response.
    """

    __slots__ = ()

    def begin(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        replay.await_answer(connection, asked, now_ms, serial=True)


class _FetchRules(_OldReadRules):
    """While the limiters are throttled, the first response of a connection has no records and is not charged,
    and the client repeats the fetch in its turn.
    """

    __slots__ = ()

    def answered(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        if asked[2] and self.closed_until_ms(in_line=0 < connection.turn_ms <= now_ms) <= now_ms:
            super().answered(replay, connection, asked, now_ms)
            return
        rest_ms = self.over_until_ms - now_ms
        connection.turn_ms = self.over_until_ms
        replay.hours.count(0.0, now_ms)
        if rest_ms > 0:
            told_ms = max(self.counted_until_ms - now_ms, 0)
            replay.throttle(connection, rest_ms, now_ms, now_ms, told_ms or None)
            if asked[2]:
                replay.fetch_again(connection, asked)

    def _charge(self, value: float, now_ms: int) -> int:
        return self._budget.charge_in_turn(value, now_ms)

    @property
    def over_until_ms(self) -> int:
        return self._budget.throttled_until_ms

    def closed_until_ms(self, *, in_line: bool) -> int:
        return self._budget.closed_until_ms(in_line=in_line)

    @property
    def counted_until_ms(self) -> int:
        until_ms = self._counted.throttled_until_ms
        return until_ms if self._floor is None else min(until_ms, self._floor.throttled_until_ms)


class _TimeRules(ChargeRules):
    """Each request is charged when its response begins. Near a limit, a connection has one in flight."""

    __slots__ = ("_budget", "_counted")

    def __init__(self, budget: RequestBudget | Chain, counted: Budget) -> None:
        super().__init__()
        self._budget, self._counted = budget, counted

    def begin(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        replay.await_answer(connection, asked, now_ms, serial=self._budget.near)

    def answered(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        percent = asked[2]
        replay.hours.count(percent, now_ms)
        before_ms = self._counted.throttle_ms_total
        wait_ms = self._budget.charge_api(asked[5], percent, now_ms)
        if wait_ms:
            told_ms = self._counted.throttle_ms_total - before_ms
            replay.throttle(connection, wait_ms, now_ms, now_ms, told_ms or None)


class _MutationRules(ChargeRules):
    """Each request is charged when it is taken from its connection, throttled from the response on."""

    __slots__ = ("_budget", "_counted")

    def __init__(self, budget: MutationBudget | MutationChain, counted: MutationBudget) -> None:
        super().__init__()
        self._budget, self._counted = budget, counted

    def begin(self, replay: Replay, connection: ReplayedConnection, asked: Asked, now_ms: int) -> None:
        _at, service_ms, cost, _connection, recorded_ms, strict = asked
        counted = self._counted
        before_ms, refused_before = counted.throttle_ms_total, counted.refused
        request = self._budget.begin(strict=strict != 0)
        admitted = not cost or request.admit(cost, now_ms)
        refused = not admitted
        if admitted and strict and recorded_ms:  # the refused topics' costs were not recorded
            refused = not request.admit(0.0, now_ms)
        replay.hours.count(cost if admitted else 0.0, now_ms)
        answered_ms = now_ms + service_ms
        wait_ms = request.finish(answered_ms)
        if wait_ms or refused:
            told_ms = counted.throttle_ms_total - before_ms
            is_counted = told_ms or counted.refused > refused_before
            replay.throttle(connection, wait_ms, now_ms, answered_ms, told_ms if is_counted else None)
        if not admitted:
            replay.ask_again(connection, asked, now_ms)


class ReplayedLimiters:
    """The limiter that is replayed, and those that its clients have besides it."""

    def __init__(self, key: QuotaKey, limit: float, num_samples: int, window_s: int, pacing: Pacing) -> None:
        """Begin without usage. `limit` is in the unit of `key`. Raises KeyError if `key` is no quota of
        clients.
        """
        self._of_member = _rules_of(key)
        self.num_samples, self.window_s = num_samples, window_s
        self.counted = ReplayedLimit(_ALL_CLIENTS, limit, pacing)
        """The limit whose waits the hours count."""
        self._budgets: dict[ReplayedLimit, Budget] = {}
        self._floors: dict[ReplayedLimit, Budget] = {}
        self._mutations: dict[ReplayedLimit, MutationBudget] = {}
        self._rules: dict[ReplayedMember | None, ChargeRules] = {}
        self.rules(None)

    def rules(self, member: ReplayedMember | None) -> ChargeRules:
        """Return the rules for a member's connections; for None, those for clients with this limit only."""
        found = self._rules.get(member)
        if found is None:
            found = self._rules[member] = self._of_member(self, member or ReplayedMember())
        return found

    def is_idle(self, now_ms: int) -> bool:
        """Return True if no former charge and no throttle matters for a charge at `now_ms`."""
        budget = self._budgets.get(self.counted)
        return self.mutations(self.counted).is_idle(now_ms) if budget is None else budget.is_idle(now_ms)

    def rate(self, limit: ReplayedLimit) -> Budget:
        """Return the budget of bytes with this limit."""
        found = self._budgets.get(limit)
        if found is None:
            found = self._budgets[limit] = paced(self._budget(limit), limit.pacing)
        return found

    def _budget(self, limit: ReplayedLimit) -> Budget:
        return Budget(limit.tags, limit.value, 0, num_samples=self.num_samples, window_s=self.window_s)

    def time(self, limit: ReplayedLimit) -> RequestBudget:
        """Return the budget of request time with this limit."""
        found = self._budgets.get(limit)
        if isinstance(found, RequestBudget):
            return found
        made = RequestBudget(limit.tags, limit.value, 0, num_samples=self.num_samples, window_s=self.window_s)
        self._budgets[limit] = made
        return made

    def mutations(self, limit: ReplayedLimit) -> MutationBudget:
        """Return the budget of mutations with this limit."""
        found = self._mutations.get(limit)
        if found is None:
            found = self._mutations[limit] = MutationBudget(
                limit.tags, limit.value, 0, num_samples=self.num_samples, window_s=self.window_s
            )
        return found

    def floor(self, limit: ReplayedLimit, groups: tuple[Budget, ...]) -> Budget:
        """Return the budget that measures a floor. `groups` count from now on what members use below."""
        for group in groups:
            if group.floors is None:
                group.floors = self._budget(ReplayedLimit(group.tags, group.limit))
        found = self._floors.get(limit)
        if found is None:
            found = self._floors[limit] = self._budget(limit)
        return found


def _produced(limiters: ReplayedLimiters, member: ReplayedMember) -> ChargeRules:
    return _ProduceRules(*_chained(limiters, member))


def _fetched(limiters: ReplayedLimiters, member: ReplayedMember) -> ChargeRules:
    return _FetchRules(*_chained(limiters, member))


def _read_old(limiters: ReplayedLimiters, member: ReplayedMember) -> ChargeRules:
    return _OldReadRules(*_chained(limiters, member))


def _chained(limiters: ReplayedLimiters, member: ReplayedMember) -> tuple[AnyBudget, Budget, Budget | None]:
    counted = limiters.rate(limiters.counted)
    if member == ReplayedMember():
        return counted, counted, None
    groups = (*map(limiters.rate, member.groups), counted)
    floor = None if member.floor is None else limiters.floor(member.floor, groups)
    own = None if member.own is None else limiters.rate(member.own)
    return Chain(own, groups, floor), counted, floor


def _timed(limiters: ReplayedLimiters, member: ReplayedMember) -> ChargeRules:
    counted = limiters.time(limiters.counted)
    own = None if member.own is None else limiters.time(member.own)
    groups = tuple(map(limiters.time, member.groups))
    return _TimeRules(Chain(own, (*groups, counted)) if own or groups else counted, counted)


def _mutating(limiters: ReplayedLimiters, member: ReplayedMember) -> ChargeRules:
    counted = limiters.mutations(limiters.counted)
    lower = [*([] if member.own is None else [member.own]), *member.groups]
    chain = MutationChain((*map(limiters.mutations, lower), counted))
    return _MutationRules(chain if lower else counted, counted)


def _rules_of(key: QuotaKey) -> Callable[[ReplayedLimiters, ReplayedMember], ChargeRules]:
    kind = KINDS[key]
    if kind.is_of_controller:
        return _mutating
    if kind.unit == "percent":
        return _timed
    return _BY_MOMENT[kind.charged]


_BY_MOMENT: Final[dict[str | None, Callable[[ReplayedLimiters, ReplayedMember], ChargeRules]]] = {
    "arrival": _produced,
    "in turn": _fetched,
    "response": _read_old,
}
