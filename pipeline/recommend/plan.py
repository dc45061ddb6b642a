"""What a recommendation is asked for: whose use, which statistic of it, what is added, what there is to give.

All numbers are in the quotas' own units (`quotas.quota_entry.UNITS`): bytes/s, percent of one thread's time,
partitions/s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Final

from pipeline.outcome import PipelineError
from quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from quotas.quota_entry import UNITS, least, most

QUOTAS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
"""What can be recommended, in the order in which an entry says it."""
BYTES: Final = QUOTAS[:2]
"""Those that are whole numbers."""
FLOORS: Final[Mapping[QuotaKey, float]] = MappingProxyType(
    dict(zip(QUOTAS, (1_000_000.0, 1_000_000.0, 5.0, 1.0), strict=True))
)
PERCENTILES: Final = {50: "p50", 95: "p95", 99: "p99", 100: "max"}
"""Of an hour's windows: which of them the roll-up has, under which names."""
AUTO: Final = "auto"
LEVELS: Final = ("user-client-id", "user", "client-id")
ANONYMOUS: Final = "ANONYMOUS"
"""Who every client is that does not log in."""
STEPS_PER_UNIT: Final = 100
"""Quotas that may have fractions are proposed in hundredths: nobody reads more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of one recommendation."""

    now: datetime
    """When it is made, for the file's first line; in UTC."""
    output: str = "quotas.toml"
    """The quota file's name, as it is told."""
    level: str = AUTO
    """Who gets an entry: each of `LEVELS`, or `AUTO`: client-ids if every user is `ANONYMOUS`, else pairs."""
    days: tuple[date, date] | None = None
    """The first and the last day; None: all there are."""
    quotas: tuple[QuotaKey, ...] = QUOTAS[:3]
    percentile: int = 99
    """Of the windows in an hour: one of `PERCENTILES`."""
    hours_percentile: float = 100.0
    """Of the hours in which there was such use; 100 is the busiest."""
    growth: float = 0.0
    """What is added for growth, as a share: 0.2 is 20 %."""
    headroom: float = 1.5
    """What need is multiplied with, at least 1."""
    floors: Mapping[QuotaKey, float] = field(default_factory=lambda: FLOORS)
    """Nobody is given less. Quotas that are not here have their `FLOORS`."""
    capacity: Mapping[QuotaKey, float] = field(default_factory=dict)
    """Of each broker, of mutations in the cluster; a quota that is not here is not held to any."""
    over_commitment: float = 1.0
    """How often the capacity may be promised: not everybody needs his at once."""
    min_active_hours: int = 1
    """Who was active in fewer hours gets no entry of his own."""
    with_default: bool = True
    """Whether one default entry stands for all whose proposal is the floor."""
    near: float = 0.2
    """Who never used this share of his quota is flagged."""
    throttled: float = 0.5
    """Who was throttled in more than this share of the time in which he was active is flagged."""
    current: QuotaTable | None = None
    """The quotas in force."""
    current_name: str = ""

    def floor(self, quota: QuotaKey) -> float:
        """The least that is proposed."""
        return self.floors.get(quota, FLOORS[quota])

    @property
    def factor(self) -> float:
        """What is proposed for each unit of use."""
        return (1 + self.growth) * self.headroom

    def check(self) -> None:
        """Raise PipelineError for a parameter that makes no sense."""
        _among("level", self.level, (AUTO, *LEVELS))
        _among("percentile", self.percentile, tuple(PERCENTILES))
        _within("hours-percentile", self.hours_percentile, 0, 100)
        _within("growth", self.growth, 0)
        _within("headroom", self.headroom, 1)
        _within("over-commitment", self.over_commitment, 0.01)
        _within("near", self.near, 0, 1)
        _within("throttled", self.throttled, 0, 1)
        _within("min-active-hours", self.min_active_hours, 1)
        if self.days is not None and self.days[0] > self.days[1]:
            raise PipelineError(
                f"days {self.days[0]}..{self.days[1]} end before they begin: exchange the two"
            )
        if not self.quotas:
            raise PipelineError("no quota is asked for: give --quotas")
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
                if what == "floor" and quota in BYTES and value != value // 1:
                    raise PipelineError(f"floor of {quota.value} is {value:g}, must be {UNITS[quota]}")
                if what == "capacity" and quota not in self.quotas:
                    raise PipelineError(
                        f"a capacity is given for {quota.value}, which is not recommended: add it to --quotas"
                    )


def everybody(level: str) -> Entity:
    """The default at a level: every name without an entry of its own.

    >>> str(everybody("user-client-id"))
    'user <default>, client-id <default>'
    """
    return Entity(DEFAULT if "user" in level else None, DEFAULT if "client-id" in level else None)


def is_of_level(entity: Entity, level: str) -> bool:
    """Whether an entity names (or, of client-ids, begins) exactly what a level tells apart."""
    return isinstance(entity.user, str) == ("user" in level) and (
        isinstance(entity.client_id, str | Prefix) == ("client-id" in level)
    )


def moment(time_ms: int) -> str:
    """A time of records, for people.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13 UTC'
    """
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _among(what: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise PipelineError(f"{what} is {value}, must be one of {', '.join(map(str, choices))}")


def _within(what: str, value: float, at_least: float, at_most: float = math.inf) -> None:
    if not (at_least <= value <= at_most and math.isfinite(value)):  # NaN is not either
        bounds = f"at least {at_least:g}" if at_most == math.inf else f"from {at_least:g} to {at_most:g}"
        raise PipelineError(f"{what} is {value:g}, must be {bounds}")
