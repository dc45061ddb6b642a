"""What the report shows, as plain values: `pipeline.report.data` asks Spark for it, the charts draw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.report.names import Entity
from pipeline.report.units import BYTES, BYTES_PER_S, COUNT, PER_S, PERCENT, SECONDS, Quantity

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
HOURS_MAX: Final = 240
"""Columns of hours; what spans more is shown by days."""
DAYS_MAX: Final = 400
"""Columns of days; what spans more is shown by several days."""

RATE_QUANTITIES: Final = {
    "producer_byte_rate": BYTES_PER_S,
    "consumer_byte_rate": BYTES_PER_S,
    "request_percentage": PERCENT,
    "controller_mutation_rate": PER_S,
}
"""In what the quotas that may be set are counted."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What entities are compared by."""

    name: str
    title: str
    """In a sentence: 'produced bytes'."""
    quantity: Quantity
    rate: str
    """The rate of the same thing, in the roll-ups."""


MEASURES: Final = (
    Measure("produced_bytes", "produced bytes", BYTES, "producer_byte_rate"),
    Measure("fetched_bytes", "fetched bytes", BYTES, "consumer_byte_rate"),
    Measure("request_time_s", "request time", SECONDS, "request_percentage"),
    Measure("mutations", "mutations", COUNT, "controller_mutation_rate"),
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The periods that a heat map shows."""

    from_ms: int
    step_ms: int
    count: int

    @property
    def starts(self) -> list[int]:
        """When each begins."""
        return [self.from_ms + index * self.step_ms for index in range(self.count)]

    @property
    def word(self) -> str:
        """What a column is."""
        days = self.step_ms // DAY_MS
        return "hour" if not days else "day" if days == 1 else f"{days} days"


@dataclass(frozen=True, slots=True)
class Span:
    """The time from the beginning of the first period with any use to the end of the last."""

    from_ms: int
    to_ms: int

    @property
    def columns(self) -> Columns:
        """Hours while they are few, then days, then several days: never more than a chart can hold."""
        first_hour = self.from_ms // HOUR_MS * HOUR_MS
        hours = -(-(self.to_ms - first_hour) // HOUR_MS)
        if hours <= HOURS_MAX:
            return Columns(first_hour, HOUR_MS, hours)
        first_day = self.from_ms // DAY_MS * DAY_MS
        days = -(-(self.to_ms - first_day) // DAY_MS)
        step = -(-days // DAYS_MAX)
        return Columns(first_day, step * DAY_MS, -(-days // step))


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it in numbers."""

    span: Span
    entities: int
    throttled_entities: int
    requests: int
    bytes_in: int
    bytes_out: int
    throttle_s: float
    busiest: Entity
    """By bytes in and out."""
    busiest_bytes: int


@dataclass(frozen=True, slots=True)
class Talker:
    """An entity's use."""

    entity: Entity
    total: float
    peak: float | None
    """The highest rate of any window, in the rate's unit."""


@dataclass(frozen=True, slots=True)
class Talkers:
    """The entities that used most."""

    measure: Measure
    rows: tuple[Talker, ...]
    rest: float
    rest_count: int

    @property
    def total(self) -> float:
        """Of all entities."""
        return sum(row.total for row in self.rows) + self.rest


@dataclass(frozen=True, slots=True)
class Heat:
    """Values by entity and time. A cell without anything is not there."""

    title: str
    quantity: Quantity
    columns: Columns
    rows: tuple[tuple[Entity, dict[int, float]], ...]
    rest: dict[int, float]
    rest_count: int


@dataclass(frozen=True, slots=True)
class ThrottledEntity:
    """How long one was told to wait, by quota, in s."""

    entity: Entity
    by_quota: dict[str, float]


@dataclass(frozen=True, slots=True)
class Throttled:
    """The entities that were throttled most."""

    rows: tuple[ThrottledEntity, ...]
    rest: dict[str, float]
    rest_count: int
    heats: tuple[Heat, ...]
    """All quotas together first, then each that throttled anybody."""

    def total(self, quota: str) -> float:
        """Of all entities."""
        return sum(row.by_quota[quota] for row in self.rows) + self.rest[quota]


@dataclass(frozen=True, slots=True)
class Broker:
    """What one broker did."""

    broker: int
    records: int
    requests: int
    bytes_in: int
    bytes_out: int
    request_time_s: float


@dataclass(frozen=True, slots=True)
class Uneven:
    """An entity that uses one broker more than others."""

    entity: Entity
    brokers: int
    busiest_broker: int
    skew: float
    """The busiest broker's bytes / the mean of its brokers."""
    excess_bytes: float
    """At its busiest brokers, beyond that mean."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How use is spread over the brokers."""

    brokers: tuple[Broker, ...]
    rest: Broker | None
    """All others, summed up."""
    rest_count: int
    uneven: tuple[Uneven, ...]


@dataclass(frozen=True, slots=True)
class Recommended:
    """What is proposed for one entity."""

    entity: Entity
    used: float | None
    current: float | None
    proposed: float | None
    in_default: bool
    flags: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What is proposed for one quota."""

    quota: str
    rows: tuple[Recommended, ...]
    count: int
    """Of proposals, those in `rows` among them."""
    raised: int
    lowered: int
    new: int
    """Where there is no limit now."""
    flags: tuple[tuple[str, int], ...]
    """How many entities have it, most first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one quota file would have done."""

    name: str
    throttled_s: dict[str, float]
    """By quota."""
    violations: int
    """Number of requests that were answered with a throttle time, or refused."""
    given_up: int
    """Requests that waited longer than their client is patient."""

    @property
    def total_s(self) -> float:
        """Of all quotas."""
        return sum(self.throttled_s.values())


@dataclass(frozen=True, slots=True)
class Replayed:
    """One entity under each candidate, in their order."""

    entity: Entity
    throttled_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """The what-if comparison."""

    candidates: tuple[Candidate, ...]
    left_out: int
    """Candidates beyond those shown."""
    rows: tuple[Replayed, ...]
    rest: tuple[float, ...]
    rest_count: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """What ingest made of the records of a kind."""

    kind: str
    batches: int
    read: int
    good: int
    late: int
    malformed: int
    bad_batches: tuple[tuple[int, int, int], ...]
    """The latest batches with such: batch, late, malformed."""
    reasons: tuple[tuple[str, int], ...]
    """Why lines were no records, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the report shows; None where there is no table for it."""

    level: str
    top: int
    overview: Overview | None = None
    talkers: tuple[Talkers, ...] = ()
    heats: tuple[Heat, ...] = ()
    throttled: Throttled | None = None
    spread: Spread | None = None
    recommendations: tuple[Recommendation, ...] = ()
    replay: Replay | None = None
    ingested: tuple[Ingested, ...] = ()
