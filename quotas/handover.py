"""The units that clients of one process have used, for a process that takes their quotas over.

The new process continues with the same samples, balances and throttle times, so a restart gives no client its
quota a second time. Times are ages, because the two processes need not have the same clock.
"""
# mypyc: skip, because msgspec reads the types of UsedUnits, which mypyc drops; no request calls it.

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.connections import ConnectionBudget
from weir.quotas.limiters.budgets import Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.single import SingleLimiter
from weir.quotas.mutations import MutationBudget
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.table.entities import Tags
from weir.quotas.topics import TopicBudgets

AGE_MS_MAX = 3_600_000
"""Maximum age (ms) of a charge, and maximum throttle time (ms): one hour."""

STEP: Final = 50
"""Number of limiters whose charges are read in one step, which takes about a millisecond."""

Quotas: TypeAlias = (
    ClientQuotas[Budget] | ClientQuotas[RequestBudget] | ClientQuotas[MutationBudget] | ClientQuotas[Limiter]
)
AnyQuotas: TypeAlias = Quotas | TopicBudgets
"""Quotas of clients, or rates of topics."""
CarriedQuotas: TypeAlias = (
    AnyQuotas
    | ClientQuotas[ConnectionBudget]
    | SingleLimiter[ConnectionBudget]
    | SingleLimiter[ReplicationBudget]
)
"""All quotas whose usage other processes of this Weir get to know: also those of connections and replication.
"""
CARRIED: Final = Budget, MutationBudget, ConnectionBudget, ReplicationBudget
"""Classes of the limiters whose usage other processes get to know."""
QuotasName: TypeAlias = tuple[int | None, str, bool]
"""Name of the quotas of a broker, or of a cluster: node id (None for quotas that brokers share, or of an
unknown broker), a name, and True for those of shadow entries.
"""


class UsedUnits(NamedTuple):
    """Charges of one limiter that still count."""

    quotas: QuotasName
    tags: Tags
    charges: list[tuple[int, float]]
    """(Age in ms, units) of each charge, the oldest first."""
    throttle_ms: int
    """Time (ms) for which clients are still throttled."""


def used(quotas: CarriedQuotas, of: QuotasName, now_ms: int) -> Iterator[UsedUnits | None]:
    """Yield the charges of each limiter that still count. Yield None after each step of about a millisecond.
    `of` is the field `quotas` of the results.
    """
    for limiters in quotas.slices():
        for number, limiter in enumerate(limiters, 1):
            if isinstance(limiter, CARRIED) and not limiter.is_idle(now_ms):
                charges = [
                    (now_ms - at_ms if at_ms < now_ms else 0, units)
                    for at_ms, units in limiter.counting(now_ms)
                ]
                yield UsedUnits(of, limiter.tags, charges, max(limiter.throttled_until_ms - now_ms, 0))
            if number % STEP == 0:
                yield None
        yield None


def absorb(quotas: CarriedQuotas, taken: UsedUnits, now_ms: int, *, bounded: bool = False) -> None:
    """Record charges that `used` has returned in another process; ignore them if no quota applies any
    more. With `bounded`, for numbers that anybody may have written, no client waits for more than one window
    because of them.
    """
    ages = [min(max(age_ms, 0), AGE_MS_MAX) for age_ms, _units in taken.charges]
    began_ms = now_ms - max(ages, default=0)
    limiter = quotas.restored(taken.tags, began_ms)
    if not isinstance(limiter, CARRIED):
        return
    charges = [units for _age_ms, units in taken.charges]
    if bounded:
        charges = _within(
            limiter.restored_max - sum(units for _ms, units in limiter.counting(now_ms)), charges
        )
    for age_ms, units in zip(ages, charges, strict=True):
        limiter.absorb(units, now_ms - age_ms)
    if isinstance(limiter, Budget) and limiter.has_line(now_ms):
        return  # the units have lengthened the line; the time on the way would lengthen it each time
    until_ms = now_ms + min(max(taken.throttle_ms, 0), AGE_MS_MAX)
    limiter.throttled_until_ms = max(limiter.throttled_until_ms, until_ms)


def _within(room: float, charges: list[float]) -> list[float]:
    """Return the charges, none below 0, and not more than `room` units altogether."""
    kept = []
    for units in charges:
        kept.append(max(min(units, room), 0.0))
        room -= kept[-1]
    return kept
