"""The increase of the limiters of one process, which other processes absorb.

The supervisor absorbs the charges of all workers. So it has the usage of every client, for the admin
endpoint, for the log of throttles, and for a worker that takes the place of a dead one. Each worker absorbs
the charges of the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

import msgspec

from weir.proxy.control.quota_registry import UNSEEN, QuotaRegistry
from weir.quotas.connections import ConnectionBudget
from weir.quotas.handover import CARRIED, CarriedQuotas, QuotasName, UsedUnits
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.mutations import MutationBudget
from weir.quotas.registry import SLICE
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.table.entities import Tags
from weir.quotas.used import LOOK_MAX, UsedLimiters, taken

CHARGES_MAX: Final = 200
"""Maximum number of charges in a message."""
ALONE_MAX: Final = 100
"""Maximum number of limiters to visit at a look of a worker without others: 0.2 ms of work. Its charges are
needed elsewhere only for the page, and if it dies.
"""
THROTTLED_MAX: Final = 10_000
"""Number of limiters with throttles above which those of removed limiters are forgotten."""


_Carried: TypeAlias = Budget | MutationBudget | ConnectionBudget | ReplicationBudget


class LimiterCharge(msgspec.Struct, frozen=True, array_like=True):
    """The increase of one limiter."""

    used: UsedUnits
    """Units used since the last charge, and the present throttle time."""
    throttled: int = 0
    """Number of further throttled requests."""
    throttle_ms: int = 0
    """Sum of their throttle times (ms)."""
    refused: int = 0
    """Number of further refused topics; 0 for other limiters than those of mutations."""
    by_api: dict[int, float] = {}
    """Further request time by API; empty for other limiters than those of request time."""


def _waits(limiter: _Carried, now_ms: int) -> bool:
    """Return True if clients wait, so that further requests may be told to wait without a charge."""
    return limiter.throttled_until_ms > now_ms


class ChargeReader:
    """Reads the increase of all limiters. A look visits used limiters only, and of many the next ones."""

    def __init__(self, registry: QuotaRegistry, look_max: int = LOOK_MAX) -> None:
        """Begin with all limiters of the registry unread. A look visits at most `look_max` used limiters."""
        self._registry = registry
        self._look_max = look_max
        self.visits_all = True
        """True unless the latest look has left used limiters to the next ones."""
        self._stamp = UNSEEN
        """Stamp of the registry whose quotas are watched."""
        self._watched: dict[QuotasName, tuple[CarriedQuotas, list[Tags]]] = {}
        """Quotas, and the list of their limiters that may have been charged since the last look."""
        self._used: Final = UsedLimiters[tuple[QuotasName, Tags]](registry.sample_ms)
        self._throttled: dict[tuple[QuotasName, Tags], tuple[int, int, int]] = {}
        """Counters of throttles at the last look, of limiters that have throttled: requests, ms, topics."""

    def look(self, now_ms: int, *, everything: bool = False) -> Iterator[LimiterCharge | None]:
        """Yield a charge for each visited limiter that was charged since its last visit; None after each step
        of about a millisecond. `everything`: True to visit all used limiters, however many. Two looks may run
        at the same time.
        """
        self._forget()
        self._watch()
        for number, (of, tags) in enumerate(self._next_ones(now_ms, everything=everything), 1):
            limiter: Limiter | ReplicationBudget | None = self._watched[of][0].known(tags)
            if isinstance(limiter, CARRIED):
                charge = self._charge(of, limiter, now_ms)
                if charge is not None:
                    self._used.note((of, tags), now_ms)
                    yield charge
                elif not _waits(limiter, now_ms):
                    self._used.cool((of, tags), now_ms)
            else:
                self._used.forget((of, tags))
            if number % SLICE == 0:
                yield None

    def _watch(self) -> None:
        """Look at all quotas from now on. All limiters of new ones count as used at the beginning."""
        if self._stamp != self._registry.stamp:
            self._stamp = self._registry.stamp
            for of, quotas in self._registry.named():
                if of not in self._watched:
                    self._watched[of] = quotas, quotas.watch()

    def _next_ones(self, now_ms: int, *, everything: bool) -> list[tuple[QuotasName, Tags]]:
        """Return the limiters to visit at this look; all used ones with `everything`."""
        for of, (_quotas, noted) in self._watched.items():
            for tags in taken(noted, len(noted) if everything else LOOK_MAX):
                self._used.note((of, tags), now_ms)
        chosen = self._used.all() if everything else self._used.next_ones(self._look_max)
        self.visits_all = everything or len(chosen) < self._look_max
        return chosen

    def _forget(self) -> None:
        """Forget counters of limiters that were removed, if there are many."""
        if len(self._throttled) > THROTTLED_MAX:
            named = dict(self._registry.named())
            self._throttled = {
                (of, tags): counted
                for (of, tags), counted in self._throttled.items()
                if of in named and named[of].known(tags) is not None
            }

    def _charge(self, of: QuotasName, limiter: _Carried, now_ms: int) -> LimiterCharge | None:
        units = limiter.delta()
        if not units and not limiter.throttled:
            return None
        refused = limiter.refused if isinstance(limiter, MutationBudget) else 0
        counted = limiter.throttled, limiter.throttle_ms_total, refused
        before = self._throttled.get((of, limiter.tags), (0, 0, 0))
        if not units and counted == before:
            return None
        if before[0] > counted[0]:  # the limiter was removed, and made again
            before = 0, 0, 0
        if limiter.throttled:
            self._throttled[of, limiter.tags] = counted
        used = UsedUnits(of, limiter.tags, [(0, units)], max(limiter.throttled_until_ms - now_ms, 0))
        by_api = limiter.delta_by_api() if isinstance(limiter, RequestBudget) else {}
        return LimiterCharge(
            used, counted[0] - before[0], counted[1] - before[1], counted[2] - before[2], by_api
        )


def of_all(registry: QuotaRegistry, now_ms: int) -> Iterator[list[LimiterCharge] | None]:
    """Yield all units that clients have used and that still count, for a worker that begins; None after each
    step of about a millisecond.
    """
    some: list[LimiterCharge] = []
    for used in registry.used(now_ms):
        if used is not None:
            some.append(LimiterCharge(used))
            continue
        if some:
            yield some
            some = []
        yield None


def take(registry: QuotaRegistry, charges: Collection[LimiterCharge], now_ms: int, *, count: bool) -> None:
    """Absorb charges of other processes. `count`: whether they also count in the totals of the limiters."""
    registry.absorb((charge.used for charge in charges), now_ms)
    for charge in charges if count else ():
        quotas = registry.with_name(charge.used.quotas)
        limiter = None if quotas is None else quotas.known(charge.used.tags)
        if isinstance(limiter, CARRIED):
            _count(limiter, charge)


def _count(limiter: _Carried, charge: LimiterCharge) -> None:
    limiter.charged += sum(units for _age_ms, units in charge.used.charges)
    limiter.throttled += charge.throttled
    limiter.throttle_ms_total += charge.throttle_ms
    if isinstance(limiter, MutationBudget):
        limiter.refused += charge.refused
    if isinstance(limiter, RequestBudget):
        limiter.count_by_api(charge.by_api)
