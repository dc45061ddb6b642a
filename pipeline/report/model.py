"""The values that the report shows; `data` reads them, `view` and the template prepare them for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final, NamedTuple

from weir.pipeline.report.names import ReportEntity
from weir.pipeline.report.units import moment
from weir.quotas.table.quota_kind import KINDS, QuotaKey

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS

Series = tuple[float, ...]
"""One value per column."""
Loads = Mapping[str, Series]
"""By quota: rates in each column, over the recorded time."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The options of a report."""

    cluster: str = "default"
    days: tuple[date, date] | None = None
    """First and last day (UTC); None for all days."""
    level: str = "user-client-id"
    top: int = 30
    """Number of clients with a page of their own."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Capacity of each broker by quota, in the quota's unit."""

    @property
    def limited(self) -> list[str]:
        """Quotas for which brokers have a capacity; mutations are limited in the whole cluster."""
        return [quota for quota in self.capacity if not KINDS[QuotaKey(quota)].is_of_controller]


@dataclass(frozen=True, slots=True)
class Columns:
    """Consecutive periods of equal length (hours or days), the columns of all charts by time."""

    from_ms: int
    step_ms: int
    recorded_s: Series
    """Time (s) of each period during which Weir recorded usage."""

    @property
    def count(self) -> int:
        return len(self.recorded_s)

    @property
    def to_ms(self) -> int:
        """End (ms) of the last period."""
        return self.from_ms + self.count * self.step_ms

    @property
    def word(self) -> str:
        """Length of a period in words: `hour` or `day`."""
        return "hour" if self.step_ms == HOUR_MS else "day"

    def when(self, index: int) -> str:
        """Return the time at which a column begins as text."""
        start_ms = self.from_ms + index * self.step_ms
        return moment(start_ms, "%a %-d %b %H:%M" if self.step_ms == HOUR_MS else "%a %-d %b")

    def latest(self, count: int) -> Columns:
        """Return the last `count` columns."""
        left = self.recorded_s[-count:]
        return Columns(self.to_ms - len(left) * self.step_ms, self.step_ms, left)

    def week(self, ago: int) -> slice:
        """Return the columns of the last seven days (`ago` = 0), or of the seven days before them (1)."""
        ends = (self.count - (ago + back) * WEEK_MS // self.step_ms for back in (1, 0))
        return slice(*(max(end, 0) for end in ends))

    def rate(self, amounts: Series, part: slice = slice(None)) -> float:
        """Return the sum of the amounts / the recorded time (s) of some columns; 0 without recorded time."""
        seconds = sum(self.recorded_s[part])
        return sum(amounts[part]) / seconds if seconds else 0.0

    def rates(self, amounts: Series) -> Series:
        """Return each amount / the recorded time (s) of its column."""
        return tuple(a / s if s else 0.0 for a, s in zip(amounts, self.recorded_s, strict=True))


class EntityCounts(NamedTuple):
    """Numbers of entities in a week."""

    entities: int = 0
    throttled: int = 0
    throttle_s: float = 0.0
    """Sum (s) of the throttle times in responses."""


@dataclass(frozen=True, slots=True)
class EntityUsage:
    """The usage of one entity."""

    entity: ReportEntity
    bytes_in: int
    bytes_out: int
    requests: int
    brokers: int
    busiest_broker: int | None
    skew: float
    """Bytes at the busiest broker / mean of the entity's brokers; 1 is even."""
    throttle_s: Mapping[str, float]
    """Sum (s) of the throttle times in responses to the entity, by quota; without zeros."""
    peaks: Mapping[str, float]
    """Highest window at any broker, by quota; without zeros."""
    bytes_: Series
    """Bytes in and out in each column."""
    means: Loads
    """Of quotas with use, at each column's busiest broker."""
    highs: Mapping[str, Series]
    """By quota with use: highest window at any broker in each column."""

    @property
    def total(self) -> int:
        """Bytes in and out."""
        return self.bytes_in + self.bytes_out


@dataclass(frozen=True, slots=True)
class Use:
    """All usage in the time of the report."""

    columns: Columns
    bytes_: Series
    """Bytes in and out of all entities in each column."""
    brokers: Mapping[int, Loads]
    """Loads of each broker by all entities."""
    brokers_left: int
    clients: tuple[EntityUsage, ...]
    """The most important entities first: by their largest share of bytes, request time, mutations or throttle
    time.
    """
    count: int
    """Number of all entities."""
    weeks: tuple[EntityCounts, EntityCounts]
    """The last seven days, and the seven days before them."""

    def highest(self, broker: int, quota: str) -> float:
        """Return the highest load of a broker in any column, in the quota's unit."""
        return max(self.brokers[broker].get(quota, ()), default=0.0)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed limit of one entity and quota; rates are in the quota's unit."""

    entity: ReportEntity
    quota: str
    used: float | None = None
    current: float | None = None
    proposed: float | None = None
    lower: float | None = None
    """Lower alternative to `proposed`, if the recommendation has one."""
    upper: float | None = None
    in_default: bool | None = False
    flags: Sequence[str] = ()
    reason: str | None = ""

    @property
    def changes(self) -> bool:
        """True if the proposal gives the entity another limit of its own."""
        return not self.in_default and self.proposed is not None and self.proposed != self.current


class Bounds(NamedTuple):
    """A value that is known within bounds, such as the result for clients that quotas held back."""

    lower: float
    upper: float | None
    """None if there is no known upper bound."""


class CandidateResult(NamedTuple):
    """Results of the replay under one candidate quota file."""

    name: str
    throttled_s: Mapping[str, Bounds]
    """Time (s) during which any client would have waited, by quota."""
    violations: int | None
    """Number of throttled requests; None if clients were held back in the recording. So is `given_up`."""
    given_up: int | None
    """Number of requests that waited longer than the client's timeout."""
    from_ms: int = 0
    """Beginning (ms) of the first hour with results."""
    to_ms: int = 0
    """End (ms) of the last hour with results."""


class Ingested(NamedTuple):
    """The result of ingest for one kind of records."""

    kind: str
    good: int
    rejected: int
    reasons: Sequence[tuple[str, int]]
    """(reason, number of lines), in descending order of the number."""


class GroupBill(NamedTuple):
    """The use of the clients of one group, and its price."""

    group: str
    """Name of the group; empty for clients in none."""
    bytes_in: int
    bytes_out: int
    requests: int
    request_time_s: float
    throttle_s: float
    amount: float


class Bill(NamedTuple):
    """Prices of the use of all entities."""

    currency: str
    amount: float
    by_entity: Mapping[ReportEntity, tuple[float, float]]
    """By entity: its request time (s), and the price of all its use."""
    groups: Sequence[GroupBill] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """All values that the report shows. A part is None or empty if its table is missing."""

    wanted: ReportOptions
    use: Use | None = None
    proposals: Sequence[Proposal] = ()
    candidates: Sequence[CandidateResult] = ()
    ingested: Sequence[Ingested] = ()
    bill: Bill | None = None
