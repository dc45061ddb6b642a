"""The increase of the limiters of one process, which other processes absorb.

The supervisor absorbs the charges of all workers. So it has the usage of every client, for the admin
endpoint, for the log of throttles, and for a worker that takes the place of a dead one. Workers absorb
the charges of quotas that brokers share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from weir.proxy.control.quota_registry import NAMES_AT_BROKERS, QuotaRegistry
from weir.quotas.handover import AnyQuotas, QuotasName, UsedUnits, absorb
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.mutations import MutationBudget
from weir.quotas.registry import SLICE
from weir.quotas.table.entities import Tags

CHARGES_MAX: Final = 200
"""Maximum number of charges in a message."""
USED_MS: Final = 2000
"""Minimum time (ms) after its last charge for which a limiter is looked at."""
LATE_MS: Final = 1000
"""Time (ms) by which a limiter is looked at for longer than a sample lasts: it is noted after each sample."""
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


class _Used:
    """The limiters of some quotas that may have been charged since the last look."""

    def __init__(self, quotas: AnyQuotas) -> None:
        """Begin with all limiters."""
        self.quotas: Final = quotas
        self._noted = quotas.watch()
        self.used_ms: Final[dict[Tags, int]] = {}
        """Tags of each used limiter → time (ms) at which a charge was last seen or noted."""

    def limiters(self, now_ms: int, used_ms: int) -> Iterator[Limiter]:
        """Yield the limiters to look at. Forget those that were not charged for `used_ms` (ms), and whose
        clients do not wait. Another look may do the same between two steps.
        """
        self.used_ms.update(dict.fromkeys(self._noted, now_ms))
        self._noted.clear()
        for tags in list(self.used_ms):
            limiter = self.quotas.known(tags)
            if limiter is not None:
                yield limiter
            latest_ms = self.used_ms.get(tags, now_ms)
            if limiter is None or (now_ms - latest_ms > used_ms and not _waits(limiter, now_ms)):
                self.used_ms.pop(tags, None)


def _waits(limiter: Limiter, now_ms: int) -> bool:
    """Return True if clients wait, so that further requests may be told to wait without a charge."""
    return isinstance(limiter, Budget | MutationBudget) and limiter.throttled_until_ms > now_ms


class Charged:
    """Reads the increase of all limiters since the last look. Looks at the used limiters only."""

    def __init__(self, registry: QuotaRegistry) -> None:
        """Begin with all limiters of the registry unread."""
        self._registry = registry
        self._used: dict[QuotasName, _Used] = {}
        self._used_ms = max(USED_MS, registry.sample_ms + LATE_MS)
        self._throttled: dict[tuple[QuotasName, Tags], tuple[int, int, int]] = {}
        """Counters of throttles at the last look, of limiters that have throttled: requests, ms, topics."""

    def look(self, now_ms: int, *, shared: bool) -> Iterator[Charge | None]:
        """Yield a charge for each limiter that was charged since the last look; None after each step of about
        a millisecond. `shared`: whether to look at the quotas that brokers share, or at the others.
        """
        self._forget()
        named = self._registry.named_of_cluster() if shared else self._registry.named_of_brokers()
        looked = 0
        for of, quotas in list(named):
            used = self._used.get(of)
            if used is None:
                used = self._used[of] = _Used(quotas)
            for limiter in used.limiters(now_ms, self._used_ms):
                looked += 1
                if looked % SLICE == 0:
                    yield None
                if isinstance(limiter, Budget | MutationBudget):
                    charge = self._charge(of, limiter, now_ms)
                    if charge is not None:
                        used.used_ms[limiter.tags] = now_ms
                        yield charge

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
    for node_id in {charge.used.quotas[0] for charge in charges if not is_shared(charge.used.quotas)}:
        registry.of(node_id)
    named = dict(registry.named())
    for charge in charges:
        quotas = named.get(charge.used.quotas)
        if quotas is not None:
            absorb(quotas, charge.used, now_ms)
            limiter = quotas.known(charge.used.tags) if count else None
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
