"""Parameters of a recommendation: level, statistic, growth, floors and capacity.

Numbers are in the quotas' units (`quotas.table.quota_kind`): bytes/s, percent of a thread,
partitions/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Final

from weir.pipeline.outcome import PipelineError
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.table.quota_entry import least, most
from weir.quotas.table.quota_kind import IN_BYTES, KINDS, RECORDED

FLOORS: Final[Mapping[QuotaKey, float]] = {key: kind.least_proposed for key, kind in RECORDED.items()}
"""Lowest limit to propose for each quota, by default."""
QUOTAS: Final = tuple(FLOORS)
"""Quotas that the job can recommend, in the order in which an entry of the file lists them."""
PERCENTILES: Final = {50: "p50", 95: "p95", 99: "p99", 100: "max"}
"""Percentiles over the windows of an hour that the roll-up has, with the names of their columns."""
AUTO: Final = "auto"
PAIRS: Final = "user-client-id"
LEVELS: Final = (PAIRS, "user", "client-id")
ANONYMOUS: Final = "ANONYMOUS"
"""Principal of all clients without authentication."""
ROBUST: Final = 99.0
"""Percentile over the hours of an entity. The busiest of many hours count as outliers."""
FEW_HOURS: Final = 24
"""Number of hours with usage below which the busiest of them makes most of a proposal."""
STEP: Final = 2.0
"""Factor, per week, on the usage of an entity whose demand was held back: its demand is unknown."""
STEPS_PER_UNIT: Final = 100
"""Number of steps per unit to which proposals other than bytes/s are rounded: 100 for hundredths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationPlan:
    """The parameters of one recommendation."""

    now: datetime
    """Time (UTC) of the recommendation, for the file's first line."""
    output: str = "quotas.toml"
    """Name of the quota file that the job writes, for messages."""
    level: str = AUTO
    """Level (kind of entity) of the entries: one of `LEVELS`, or `AUTO`. `AUTO` means client-ids if every
    user is `ANONYMOUS`, else pairs of user and client-id.
    """
    days: tuple[date, date] | None = None
    """First and last day of usage; None for all days."""
    cluster: str = "default"
    """Name of the Kafka cluster whose usage counts."""
    quotas: tuple[QuotaKey, ...] = QUOTAS[:3]
    percentile: int = 99
    """Percentile over the windows (usually 10 s) within one hour: one of `PERCENTILES`."""
    hours_percentile: float | None = None
    """Percentile over an entity's hours with usage: 100 takes the busiest hour. None means `ROBUST`."""
    growth: float = 0.0
    """Expected growth of the usage, as a share: 0.2 adds 20 %."""
    headroom: float = 1.5
    """Factor, at least 1, by which the proposed limit exceeds the usage after growth."""
    floors: Mapping[QuotaKey, float] = field(default_factory=lambda: FLOORS)
    """Lowest limit to propose for each quota, in its unit; a missing quota has its value in `FLOORS`."""
    capacity: Mapping[QuotaKey, float] = field(default_factory=dict)
    """Capacity of each broker, in the quota's unit (for mutations, of the cluster); a missing quota has no
    bound.
    """
    over_commitment: float = 1.0
    """Factor by which the load under the proposals may exceed the capacity in any hour."""
    min_active_hours: int = 1
    """Number of hours with usage that an entity needs to get an entry of its own."""
    with_default: bool = True
    """True to write one default entry, which covers all entities whose proposal is the floor, instead of an
    entry for each.
    """
    near: float = 0.2
    """Share of the current limit; an entity whose peak usage is below this share gets the flag `never near`.
    """
    current: QuotaTable | None = None
    """Quotas in force; None if unknown."""
    current_name: str = ""

    def floor(self, quota: QuotaKey) -> float:
        """Return the lowest limit to propose for a quota, in its unit."""
        return self.floors.get(quota, FLOORS[quota])

    @property
    def factor(self) -> float:
        """Factor by which a proposed limit exceeds the usage: growth times headroom."""
        return (1 + self.growth) * self.headroom

    def check(self) -> None:
        """Raise PipelineError, which names the parameter, if a parameter is invalid."""
        _among("level", self.level, (AUTO, *LEVELS))
        _among("percentile", self.percentile, tuple(PERCENTILES))
        if self.hours_percentile is not None:
            _within("hours-percentile", self.hours_percentile, 0, 100)
        _within("growth", self.growth, 0)
        _within("headroom", self.headroom, 1)
        _within("over-commitment", self.over_commitment, 0.01)
        _within("near", self.near, 0, 1)
        _within("min-active-hours", self.min_active_hours, 1)
        if self.days is not None and self.days[0] > self.days[1]:
            raise PipelineError(
                f"days {self.days[0]}..{self.days[1]} end before they begin: exchange the two"
            )
        if not self.quotas:
            raise PipelineError("no quota to recommend: give --quotas")
        for quota in self.quotas:
            _among("quota", quota.value, tuple(key.value for key in QUOTAS))
        self._check_values()

    def _check_values(self) -> None:
        for what, values in (("floor", self.floors), ("capacity", self.capacity)):
            for quota, value in values.items():
                _among(f"{what}'s quota", quota.value, tuple(key.value for key in QUOTAS))
                if not least(quota) <= value <= float(most(quota)):
                    raise PipelineError(
                        f"{what} of {quota.value} is {value:g}, must be from {least(quota):g} to "
                        f"{most(quota)}"
                    )
                if what == "floor" and quota in IN_BYTES and value != value // 1:
                    raise PipelineError(f"floor of {quota.value} is {value:g}, must be {KINDS[quota].value}")
                if what == "capacity" and quota not in self.quotas:
                    raise PipelineError(
                        f"a capacity is given for {quota.value}, which is not recommended: add it to --quotas"
                    )


def everybody(level: str) -> Entity:
    """Return the default entity of a level (kind of entity): it stands for every entity of the level without
    an entry.

    >>> str(everybody("user-client-id"))
    'user <default>, client-id <default>'
    """
    return Entity(DEFAULT if "user" in level else None, DEFAULT if "client-id" in level else None)


def entity_of(user: str | None, client_id: str | None, client_id_prefix: str | None) -> Entity:
    """Return the entity that owns a budget, from the columns `need.POT`."""
    return Entity(user, client_id if client_id_prefix is None else Prefix(client_id_prefix))


def is_of_level(entity: Entity, level: str) -> bool:
    """Return True if an entity has exactly the parts (user, client-id) of a level, each as a name; a prefix
    counts as a client-id.
    """
    return isinstance(entity.user, str) == ("user" in level) and (
        isinstance(entity.client_id, str | Prefix) == ("client-id" in level)
    )


def moment(time_ms: int) -> str:
    """Return a time (ms) as text in UTC.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _among(what: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise PipelineError(f"{what} is {value}, must be one of {', '.join(map(str, choices))}")


def _within(what: str, value: float, at_least: float, at_most: float = math.inf) -> None:
    if not (at_least <= value <= at_most and math.isfinite(value)):  # false for NaN
        bounds = f"at least {at_least:g}" if at_most == math.inf else f"from {at_least:g} to {at_most:g}"
        raise PipelineError(f"{what} is {value:g}, must be {bounds}")
