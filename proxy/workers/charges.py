"""The increase of the limiters of one process, which other processes absorb.

The supervisor absorbs the charges of all workers. So it has the usage of every client, for the admin
endpoint, for the log of throttles, and for a worker that takes the place of a dead one. Workers absorb
the charges of quotas that brokers share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from weir.proxy.control.quota_registry import NAMES_AT_BROKERS, UNSEEN, QuotaRegistry
from weir.quotas.handover import AnyQuotas, QuotasName, UsedUnits
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.mutations import MutationBudget
from weir.quotas.registry import SLICE
from weir.quotas.table.entities import Tags
from weir.quotas.used import LOOK_MAX, UsedLimiters, taken

CHARGES_MAX: Final = 200
"""Maximum number of charges in a message."""
SHARED_MS: Final = 20
"""Time (ms) between two looks at the charges of quotas that brokers or Weirs share."""
OWN_MS: Final = 250
"""Time (ms) between two looks at the other charges: a worker that dies loses those of this time. With many
used limiters, it loses those of the time until all were visited.
"""
THROTTLED_MAX: Final = 10_000
"""Number of limiters with throttles above which those of removed limiters are forgotten."""


class Charge(msgspec.Struct, frozen=True, array_like=True):
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


class _Side:
    """The limiters of some quotas: of those that brokers share, or of the others."""

    def __init__(self, sample_ms: int, look_max: int) -> None:
        """Begin without quotas. A look visits at most `look_max` used limiters."""
        self._look_max = look_max
        self.stamp = UNSEEN
        """Stamp of the registry whose quotas are watched."""
        self._watched: dict[QuotasName, tuple[AnyQuotas, list[Tags]]] = {}
        """Quotas, and the list of their limiters that may have been charged since the last look."""
        self.used: Final = UsedLimiters[tuple[QuotasName, Tags]](sample_ms)

    def watch(self, named: Iterable[tuple[QuotasName, AnyQuotas]]) -> None:
        """Look at these quotas from now on. All their limiters count as used at the beginning."""
        for of, quotas in named:
            if of not in self._watched:
                self._watched[of] = quotas, quotas.watch()

    def next_ones(self, now_ms: int, *, everything: bool) -> list[tuple[QuotasName, Tags]]:
        """Return the limiters to visit at this look; all used ones with `everything`."""
        for of, (_quotas, noted) in self._watched.items():
            for tags in taken(noted, len(noted) if everything else LOOK_MAX):
                self.used.note((of, tags), now_ms)
        return self.used.all() if everything else self.used.next_ones(self._look_max)

    def known(self, of: QuotasName, tags: Tags) -> Limiter | None:
        """Return the limiter with these tags; None if it was removed."""
        return self._watched[of][0].known(tags)


def _waits(limiter: Budget | MutationBudget, now_ms: int) -> bool:
    """Return True if clients wait, so that further requests may be told to wait without a charge."""
    return limiter.throttled_until_ms > now_ms


class Charged:
    """Reads the increase of all limiters. A look visits used limiters only, and of many the next ones."""

    def __init__(self, registry: QuotaRegistry, own_ms: int = OWN_MS) -> None:
        """Begin with all limiters of the registry unread. `own_ms`: time (ms) between two looks at quotas
        that brokers do not share. A look visits more limiters if it comes less often.
        """
        self._registry = registry
        self.own_ms: Final = own_ms
        self._shared = _Side(registry.sample_ms, LOOK_MAX)
        self._own = _Side(registry.sample_ms, LOOK_MAX * own_ms // SHARED_MS)
        self._throttled: dict[tuple[QuotasName, Tags], tuple[int, int, int]] = {}
        """Counters of throttles at the last look, of limiters that have throttled: requests, ms, topics."""

    def look(self, now_ms: int, *, shared: bool, everything: bool = False) -> Iterator[Charge | None]:
        """Yield a charge for each visited limiter that was charged since its last visit; None after each step
        of about a millisecond. `shared`: whether to look at the quotas that brokers share, or at the others.
        `everything`: True to visit all used limiters, however many. Two looks may run at the same time.
        """
        self._forget()
        side = self._shared if shared else self._own
        if side.stamp != self._registry.stamp:
            side.stamp = self._registry.stamp
            side.watch(self._registry.named_of_cluster() if shared else self._registry.named_of_brokers())
        for number, (of, tags) in enumerate(side.next_ones(now_ms, everything=everything), 1):
            limiter = side.known(of, tags)
            if isinstance(limiter, Budget | MutationBudget):
                charge = self._charge(of, limiter, now_ms)
                if charge is not None:
                    side.used.note((of, tags), now_ms)
                    yield charge
                elif not _waits(limiter, now_ms):
                    side.used.cool((of, tags), now_ms)
            else:
                side.used.forget((of, tags))
            if number % SLICE == 0:
                yield None

    def _forget(self) -> None:
        """Forget counters of limiters that were removed, if there are many."""
        if len(self._throttled) > THROTTLED_MAX:
            named = dict(self._registry.named())
            self._throttled = {
                (of, tags): counted
                for (of, tags), counted in self._throttled.items()
                if of in named and named[of].known(tags) is not None
            }

    def _charge(self, of: QuotasName, limiter: Budget | MutationBudget, now_ms: int) -> Charge | None:
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
        return Charge(used, counted[0] - before[0], counted[1] - before[1], counted[2] - before[2], by_api)


def is_shared(of: QuotasName) -> bool:
    """Return True for quotas that all brokers share: mutations, and entries with cluster scope."""
    return of[1] not in NAMES_AT_BROKERS


def take(registry: QuotaRegistry, charges: Collection[Charge], now_ms: int, *, count: bool) -> None:
    """Absorb charges of other processes. `count`: whether they also count in the totals of the limiters."""
    registry.absorb((charge.used for charge in charges), now_ms)
    for charge in charges if count else ():
        quotas = registry.with_name(charge.used.quotas)
        limiter = None if quotas is None else quotas.known(charge.used.tags)
        if isinstance(limiter, Budget | MutationBudget):
            _count(limiter, charge)


def _count(limiter: Budget | MutationBudget, charge: Charge) -> None:
    limiter.charged += sum(units for _age_ms, units in charge.used.charges)
    limiter.throttled += charge.throttled
    limiter.throttle_ms_total += charge.throttle_ms
    if isinstance(limiter, MutationBudget):
        limiter.refused += charge.refused
    if isinstance(limiter, RequestBudget):
        limiter.count_by_api(charge.by_api)
