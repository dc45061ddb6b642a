"""The values that the report shows; `pipeline.report.data` computes them, `charts` and `sections` show
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weir.pipeline.report.names import Entity
from weir.pipeline.report.units import BYTES, BYTES_PER_S, COUNT, PER_S, PERCENT, SECONDS, Quantity

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
HOURS_MAX: Final = 240
"""Maximum number of hourly columns; a longer time is shown in columns of days."""
DAYS_MAX: Final = 400
"""Maximum number of daily columns; a longer time is shown in columns of several days."""

RATE_QUANTITIES: Final = {
    "producer_byte_rate": BYTES_PER_S,
    "consumer_byte_rate": BYTES_PER_S,
    "request_percentage": PERCENT,
    "controller_mutation_rate": PER_S,
}
"""Quantity, with its units, in which the report shows each rate, by the name of the rate's quota."""


@dataclass(frozen=True, slots=True)
class Measure:
    """An amount by which the report ranks entities, such as produced bytes."""

    name: str
    title: str
    """Name of the measure for use within a sentence, such as 'produced bytes'."""
    quantity: Quantity
    rate: str
    """Name of the roll-up's rate that belongs to the measure; the rate is in the unit of its quota."""


MEASURES: Final = (
    Measure("produced_bytes", "produced bytes", BYTES, "producer_byte_rate"),
    Measure("fetched_bytes", "fetched bytes", BYTES, "consumer_byte_rate"),
    Measure("request_time_s", "request time", SECONDS, "request_percentage"),
    Measure("mutations", "mutations", COUNT, "controller_mutation_rate"),
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a heat map: consecutive periods of equal length."""

    from_ms: int
    step_ms: int
    count: int

    @property
    def starts(self) -> list[int]:
        """Times (ms) at which the columns begin."""
        return [self.from_ms + index * self.step_ms for index in range(self.count)]

    @property
    def word(self) -> str:
        """Length of one column in words: "hour", "day", or a number of days such as "3 days"."""
        days = self.step_ms // DAY_MS
        return "hour" if not days else "day" if days == 1 else f"{days} days"


@dataclass(frozen=True, slots=True)
class Span:
    """Time that the report covers, from the beginning of the first period with usage to the end of the last
    one (ms).
    """

    from_ms: int
    to_ms: int

    @property
    def columns(self) -> Columns:
        """Columns of a heat map for this span; they last an hour, a day or several days, depending on the
        length of the span.
        """
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
    """The main numbers of the report: sums over all entities."""

    span: Span
    entities: int
    throttled_entities: int
    requests: int
    bytes_in: int
    bytes_out: int
    throttle_s: float
    busiest: Entity
    """Entity with the highest sum of bytes in and out."""
    busiest_bytes: int


@dataclass(frozen=True, slots=True)
class Talker:
    """Usage of one entity in one measure, such as produced bytes."""

    entity: Entity
    total: float
    peak: float | None
    """Highest rate of the entity in any window, in the unit of the measure's rate; None if unknown."""


@dataclass(frozen=True, slots=True)
class Talkers:
    """The entities with the highest usage in one measure, and the sum of all other entities."""

    measure: Measure
    rows: tuple[Talker, ...]
    rest: float
    rest_count: int

    @property
    def total(self) -> float:
        """Usage of all entities in the measure, including those that are not shown."""
        return sum(row.total for row in self.rows) + self.rest


@dataclass(frozen=True, slots=True)
class Heat:
    """Values of a heat map, by entity and by the beginning (ms) of a period. A missing value means 0."""

    title: str
    quantity: Quantity
    columns: Columns
    rows: tuple[tuple[Entity, dict[int, float]], ...]
    rest: dict[int, float]
    rest_count: int


@dataclass(frozen=True, slots=True)
class ThrottledEntity:
    """Throttle time (s) of an entity, by quota."""

    entity: Entity
    by_quota: dict[str, float]


@dataclass(frozen=True, slots=True)
class Throttled:
    """The entities with the longest throttle times, and the sums (s, by quota) of all other entities."""

    rows: tuple[ThrottledEntity, ...]
    rest: dict[str, float]
    rest_count: int
    heats: tuple[Heat, ...]
    """Heat maps: first all quotas together, then each quota that throttled any client."""

    def total(self, quota: str) -> float:
        """Return the throttle time (s) of all entities for one quota."""
        return sum(row.by_quota[quota] for row in self.rows) + self.rest[quota]


@dataclass(frozen=True, slots=True)
class Broker:
    """The usage of one broker."""

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
    """Ratio of the bytes at the busiest broker to the mean over all brokers that the entity uses."""
    excess_bytes: float
    """Number of bytes that the busiest broker carried beyond the mean over the brokers that the entity uses,
    summed over all periods.
    """


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of usage over the brokers."""

    brokers: tuple[Broker, ...]
    rest: Broker | None
    """Sum over the brokers that are not shown; None if all are shown."""
    rest_count: int
    uneven: tuple[Uneven, ...]


@dataclass(frozen=True, slots=True)
class Recommended:
    """The proposal for one entity and quota; rates are in the quota's unit."""

    entity: Entity
    used: float | None
    current: float | None
    proposed: float | None
    in_default: bool
    flags: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The proposals for one quota."""

    quota: str
    rows: tuple[Recommended, ...]
    count: int
    """Number of proposals for the quota, including those that are not shown."""
    raised: int
    lowered: int
    new: int
    """Number of proposals for entities that have no limit now."""
    flags: tuple[tuple[str, int], ...]
    """(flag, number of entities with the flag), in descending order of the number."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Result of the replay under one candidate quota file."""

    name: str
    throttled_s: dict[str, float]
    """Time (s) in which the candidate would have throttled clients, by quota."""
    violations: int
    """Number of requests that the replay answered with a throttle time, or refused."""
    given_up: int
    """Number of requests that waited longer than the client's timeout."""

    @property
    def total_s(self) -> float:
        """Throttled time (s), summed over all quotas."""
        return sum(self.throttled_s.values())


@dataclass(frozen=True, slots=True)
class Replayed:
    """Throttled time (s) of one entity under each candidate, in the order of `Replay.candidates`."""

    entity: Entity
    throttled_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """The comparison of candidate quota files."""

    candidates: tuple[Candidate, ...]
    left_out: int
    """Number of candidate files that were replayed but are not shown."""
    rows: tuple[Replayed, ...]
    rest: tuple[float, ...]
    rest_count: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of ingest for one kind of records."""

    kind: str
    batches: int
    read: int
    good: int
    late: int
    malformed: int
    bad_batches: tuple[tuple[int, int, int], ...]
    """(number of the batch, number of late records, number of malformed lines) for the latest batches that
    have such records or lines.
    """
    reasons: tuple[tuple[str, int], ...]
    """(reason why lines are malformed, number of lines), in descending order of the number."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All values that the report shows. A part is None or empty if its table is missing."""

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
