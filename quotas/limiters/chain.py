"""Chain: the limiters of one client under one key, its own and those of its groups, charged as one.

A charge goes to each limiter, and the longest wait counts. A member may have a floor: a rate that its groups
leave to it. It waits for its groups no longer than until its own rate is down to the floor, so not at all
while it is below. The floor is measured by a limiter of its own, whose limit is the floor.

>>> from weir.quotas.table.entities import Tags
>>> group = Budget(Tags("", "", group="payments"), limit=10_000, now_ms=0)
>>> floor = Budget(Tags("canary", ""), limit=1000, now_ms=0)
>>> Chain(None, (group,)).charge(150_000, now_ms=0)
5000
>>> Chain(None, (group,), floor).charge(9000, now_ms=0), group.charged  # below the floor, but charged
(0, 159000.0)

Usage below floors is not only charged to the groups: `Budget.floors` also counts it apart. Members with a
floor go on while the others wait, so a wait that assumes the whole limit is too short: a sampled rate forgets
the excess before it is paid. With floors of 90 % and fifty greedy members the group used 1.12 limits
(tests/quotas/group_world.py, 2026-11-29). So the others wait for the part of the limit that is left, but for
one window (10 s) more at most. They are never locked out: if nothing is left, each connection still gets a
request per window, by which Kafka's quotas are exceeded, too. If members want many times their floors, a
sampled rate still forgets some of the excess; a smooth one does not.

A charge above the floor counts as below it in the proportion of the floor to the member's rate. Rejected: to
count only what still fits below. A member that waits until it is down to its floor never fits, and the others
would be granted its part, too.
"""

from __future__ import annotations

from typing import TypeAlias

from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.counters import Chargeable
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.throttle import INT32_MAX


class Chain(Chargeable):
    """Limiters of one client: its own, and those of its groups. Has the members of `Budget` by which requests
    are held, shortened and throttled.
    """

    __slots__ = ("_charges_floor", "_floor", "_groups", "_own", "_span_ms")

    def __init__(
        self,
        own: Budget | None,
        groups: tuple[Budget, ...],
        floor: Budget | None = None,
        *,
        charges_floor: bool = True,
    ) -> None:
        """Bundle the limiters of one client. `own` is None without a quota of its own, `floor` without a
        floor. `charges_floor`: False if another chain of the client charges `floor`.
        """
        self._own = own
        self._groups = groups
        self._floor = floor
        self._charges_floor = charges_floor
        self._span_ms = 0 if floor is None else floor.span_ms

    @property
    def limiters(self) -> tuple[Budget, ...]:
        """The limiters that clients may wait for: the client's own, and those of its groups."""
        return self._groups if self._own is None else (self._own, *self._groups)

    def charge(self, value: float, now_ms: int) -> int:
        """Charge `value` units to each limiter; return the longest throttle time (ms)."""
        wait_ms = 0 if self._own is None else self._own.charge(value, now_ms)
        if self._floor is not None:
            return max(wait_ms, self._charge_groups(self._floor, value, now_ms))
        for group in self._groups:
            wait_ms = max(wait_ms, group.charge(value, now_ms))
        return wait_ms

    def charge_in_turn(self, value: float, now_ms: int) -> int:
        """Charge `value` units of a fetch response; return the longest throttle time (ms). A member with a
        floor stands in no line, because the time of its turn would be that of its groups.
        """
        if self._floor is not None:
            return self.charge(value, now_ms)
        return max(limiter.charge_in_turn(value, now_ms) for limiter in self.limiters)

    def _charge_groups(self, floor: Budget, value: float, now_ms: int) -> int:
        if self._charges_floor:
            floor_ms = floor.charge(value, now_ms)
        else:
            floor_ms = max(floor.throttled_until_ms - now_ms, 0)
        # A rate r above the floor f takes floor_ms = (r - f) / f · window, so this is f / r of the value.
        below = value * self._span_ms / (self._span_ms + floor_ms)
        wait_ms = 0
        for group in self._groups:
            if group.floors is not None:
                group.floors.count(below, now_ms)
            wait_ms = max(wait_ms, group.charge_within(value, now_ms, floor_ms))
        return wait_ms

    def charge_untold(self, value: float, now_ms: int) -> None:
        """Charge `value` units for a response that can tell no throttle time."""
        if self._own is not None:
            self._own.charge_untold(value, now_ms)
        if self._floor is not None:
            self._charge_groups(self._floor, value, now_ms)
            return
        for group in self._groups:
            group.charge_untold(value, now_ms)

    def charge_api(self, api_key: int, value: float, now_ms: int) -> int:
        """Charge `value` units for a request of this API; return the longest throttle time (ms)."""
        wait_ms = 0 if self._own is None else self._own.charge_api(api_key, value, now_ms)
        for group in self._groups:
            wait_ms = max(wait_ms, group.charge_api(api_key, value, now_ms))
        return wait_ms

    @property
    def throttled_until_ms(self) -> int:
        """Time (ms) at which the client's throttle ends: that of its own limiter, or that of its groups
        unless the client is below its floor before.
        """
        until_ms = 0
        for group in self._groups:
            until_ms = max(until_ms, group.throttled_until_ms)
        if self._floor is not None:
            until_ms = min(until_ms, self._floor.throttled_until_ms)
        return until_ms if self._own is None else max(until_ms, self._own.throttled_until_ms)

    def closed_until_ms(self, *, in_line: bool) -> int:
        """Return the time (ms) until which a connection's fetches bring no records, like
        `Budget.closed_until_ms`.
        """
        if self._floor is not None:
            return self.throttled_until_ms
        return max(limiter.closed_until_ms(in_line=in_line) for limiter in self.limiters)

    @property
    def fetch_max_bytes(self) -> int:
        """Maximum `max_bytes` of a fetch: the least that a limiter allows after a long silence."""
        most = INT32_MAX
        for limiter in self.limiters:
            most = min(most, limiter.fetch_max_bytes)
        return most

    def fetch_max_bytes_at(self, now_ms: int, *, in_line: bool) -> int:
        """Return the maximum `max_bytes` of a fetch now, like `Budget.fetch_max_bytes_at`."""
        if self._floor is not None:
            return self.fetch_max_bytes if self.throttled_until_ms <= now_ms else 0
        return min(limiter.fetch_max_bytes_at(now_ms, in_line=in_line) for limiter in self.limiters)

    @property
    def near(self) -> bool:
        """True if the last charge found more than half of a limit of request time in use."""
        return any(isinstance(limiter, RequestBudget) and limiter.near for limiter in self.limiters)

    def tell_rest(self, now_ms: int) -> int:
        """Return the time (ms) for which the client's throttle still lasts, like `Budget.tell_rest`."""
        rest_ms = 0 if self._own is None else self._own.tell_rest(now_ms)
        most_ms = INT32_MAX if self._floor is None else max(self._floor.throttled_until_ms - now_ms, 0)
        for group in self._groups:
            rest_ms = max(rest_ms, group.tell_rest(now_ms, most_ms))
        return rest_ms

    def add_share_fetches(self, number: int) -> None:
        """Add to the number of share fetches that are at the broker."""
        for limiter in self.limiters:
            limiter.add_share_fetches(number)

    def share_fetch_max_bytes(self, now_ms: int) -> int:
        """Return the number of bytes for which the next share fetch may ask."""
        return min(limiter.share_fetch_max_bytes(now_ms) for limiter in self.limiters)

    def owe(self, units: float, now_ms: int) -> int:
        """Note that `units`, which were charged, came in the response of a share fetch. Return the time (ms)
        for which the client is over a limit.
        """
        own_ms = 0 if self._own is None else self._own.owe(units, now_ms)
        wait_ms = max((group.owe(units, now_ms) for group in self._groups), default=0)
        return max(own_ms, wait_ms if self._floor is None else min(wait_ms, self._floor.owe(units, now_ms)))


AnyBudget: TypeAlias = "Budget | Chain"
"""Limiter of one client, or the chain of several."""
