"""Run `quotas.replay` inside Spark, which turns charges into the hours of each budget.

Charges are sorted by budget and time within each partition, and streamed through Python in batches. The state
of the current budget is carried from one batch to the next, so that memory holds only one batch;
`applyInPandas` would hold a whole budget. The charges of one budget are replayed in sequence, on one core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.types import StringType, StructField, StructType

from weir.pipeline.tables import REPLAY
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.replay import NEVER, PATIENCE_MS, Replay
from weir.quotas.replay_demand import RECORDED, Outlook, RangedReplay
from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_table import QuotaKey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from weir.quotas.replay_hours import Hour

BUDGET: Final = (
    "cluster",
    "candidate",
    "quota",
    "of_user",
    "of_client_id",
    "of_prefix",
    "instance",
    "broker",
    "limit",
    "pacing",
    "in_force",
    "ranged",
)
"""Columns that identify a budget in the charges. Each instance of Weir has its own budgets; a restarted Weir
is a new instance. `ranged` is true if the result of the budget is a range, because its clients were held back
under another limit.
"""
CHARGE: Final = ("at_ms", "service_ms", "value", "connection", "recorded_ms", "note")
RANGED: Final = (*CHARGE, "took_ms", "waited_ms")
HOURS: Final = StructType([*REPLAY.fields, StructField("instance", StringType())])
ROWS: Final = 10_000
"""Number of result rows (hours of budgets) that are collected before they are returned to Spark as one batch.
"""


class Budget(NamedTuple):
    """Values of the columns `BUDGET`."""

    cluster: str
    candidate: str
    quota: str
    of_user: str
    of_client_id: str
    of_prefix: str
    instance: str
    broker: int | None
    limit: float
    pacing: str
    in_force: float | None
    ranged: bool


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Settings that all replayed budgets share: those of the configuration of `weir run`, and the assumed
    timeout of clients.
    """

    num_samples: int = NUM_SAMPLES_DEFAULT
    window_s: int = WINDOW_S_DEFAULT
    controller_num_samples: int = NUM_SAMPLES_DEFAULT
    controller_window_s: int = WINDOW_S_DEFAULT
    patience_ms: int = PATIENCE_MS
    throttle_ms_max: int = INT32_MAX
    """Maximum throttle time (ms) in a response to a client."""
    hold: bool = False
    """True if the throttle mode is hold: fetches over the quota still return their records."""
    end_ms: int = NEVER
    """Unix time (ms) of the end of the recording."""

    def replay(self, budget: Budget) -> Replay:
        """Return a replay of one budget, without charges so far."""
        return self._replay(budget, Replay)

    def ranged(self, budget: Budget) -> RangedReplay:
        """Return a replay of one budget by several models of demand, without charges so far."""
        return RangedReplay(
            lambda kind: self._replay(budget, kind),
            limit=budget.limit,
            in_force=budget.in_force,
            end_ms=self.end_ms,
        )

    def _replay(self, budget: Budget, kind: type[Replay]) -> Replay:
        key = QuotaKey(budget.quota)
        of_controller = key is QuotaKey.CONTROLLER_MUTATION_RATE
        return kind(
            key,
            budget.limit,
            num_samples=self.controller_num_samples if of_controller else self.num_samples,
            window_s=self.controller_window_s if of_controller else self.window_s,
            patience_ms=self.patience_ms,
            throttle_ms_max=self.throttle_ms_max,
            hold=self.hold,
            pacing=Pacing(budget.pacing),
        )


def hours(charges: DataFrame, draws: DataFrame, settings: BudgetSettings) -> DataFrame:
    """Replay charges (`pipeline.replay.charges`) under other limits; return the hours of each budget
    (`HOURS`). `draws` has the budget and limit of each client under each candidate quota file.
    """
    joined = charges.join(draws, ["quota", "user", "client_id"]).withColumns(
        {
            "broker": F.when(F.col("scope") != Scope.CLUSTER.value, F.col("broker")),
            "ranged": F.col("held_back") & ~F.col("limit").eqNullSafe(F.col("in_force")),
        }
    )
    budget, again = F.xxhash64(*BUDGET), F.xxhash64(F.lit(1), *BUDGET)
    wanted = joined.select(budget.alias("budget"), again.alias("again"), *BUDGET, *RANGED)
    rank = F.col("recorded_ms"), F.col("value") == 0  # the order of `quotas.replay.rank`
    # Two hashes instead of the names, which take long to compare.
    in_order = wanted.repartition("budget").sortWithinPartitions(
        "budget", "again", "at_ms", *rank, "connection"
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replayed(batches, settings)

    return in_order.mapInArrow(run, HOURS)


def replayed(batches: Iterable[pa.RecordBatch], settings: BudgetSettings) -> Iterator[pa.RecordBatch]:
    """Replay charges that are sorted by budget and time; yield the hours of each budget (`HOURS`). The result
    is the same for any division of the charges into batches.
    """
    rows: list[tuple[object, ...]] = []
    at_hand: _Replayed | None = None
    for batch in batches:
        for start, stop, budget in _runs(batch):
            if at_hand is None or budget != at_hand.budget:
                if at_hand is not None:
                    rows += at_hand.finish()
                at_hand = _Replayed(budget, settings)
            rows += at_hand.feed(batch, start, stop)
            if len(rows) >= ROWS:
                yield _batch(rows)
                rows = []
    if at_hand is not None:
        rows += at_hand.finish()
    yield _batch(rows)


class _Replayed:
    """A budget and its replay: by all models if its result is a range."""

    def __init__(self, budget: Budget, settings: BudgetSettings) -> None:
        self.budget = budget
        self._replay = settings.ranged(budget) if budget.ranged else settings.replay(budget)

    def feed(self, batch: pa.RecordBatch, start: int, stop: int) -> list[tuple[object, ...]]:
        """Simulate the charges in these rows; return the hours that are over (`HOURS`)."""
        if isinstance(self._replay, RangedReplay):
            self._replay.feed(*(_numbers(batch, name, start, stop) for name in RANGED))
            return []
        self._replay.feed(*(_numbers(batch, name, start, stop) for name in CHARGE))
        return self._rows(self._replay.take())

    def finish(self) -> list[tuple[object, ...]]:
        """Return the hours that `feed` has not returned (`HOURS`)."""
        if isinstance(self._replay, RangedReplay):
            return [_row(self.budget, one) for one in self._replay.finish()]
        return self._rows(self._replay.finish())

    def _rows(self, past: list[Hour]) -> list[tuple[object, ...]]:
        return [_row(self.budget, Outlook(hour, RECORDED)) for hour in past]


def _numbers(batch: pa.RecordBatch, name: str, start: int, stop: int) -> list[int]:
    numbers: list[int] = batch.column(name).slice(start, stop - start).to_numpy().tolist()
    return numbers


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int, Budget]]:
    """Yield (first row, row after the last, budget) for each series of consecutive rows with the same budget.

    The function compares hashes of budgets row by row, which is faster than a comparison of names; names are
    read only twice per budget.
    """
    import numpy as np

    if not batch.num_rows:
        return
    hashes = batch.column("budget").to_numpy()
    cuts = [0, *(np.flatnonzero(hashes[1:] != hashes[:-1]) + 1).tolist(), batch.num_rows]
    for start, stop in pairwise(cuts):
        first, last = _budget(batch, start), _budget(batch, stop - 1)
        if first == last:
            yield start, stop, first
            continue
        for row in range(start, stop):  # two budgets with the same hash, in order: practically never
            yield row, row + 1, _budget(batch, row)


def _budget(batch: pa.RecordBatch, row: int) -> Budget:
    return Budget(*(batch.column(name)[row].as_py() for name in BUDGET))


def _row(budget: Budget, outlook: Outlook) -> tuple[object, ...]:
    """Return the result of one hour of a budget as a row with the columns `HOURS`."""
    hour = outlook.hour
    told_ms, lasted_ms = outlook.throttle_ms or (None, None), outlook.throttled_ms
    return (
        budget.cluster,
        budget.candidate,
        budget.quota,
        budget.of_user or None,
        f"{budget.of_prefix}*" if budget.of_prefix else budget.of_client_id or None,
        budget.broker,
        hour.start_ms,
        budget.limit,
        outlook.demand,
        *told_ms,
        *((None, None) if lasted_ms is None else (bound / 1000 for bound in lasted_ms)),
        hour.charged,
        hour.charges,
        hour.violations,
        hour.first_ms,
        hour.last_ms,
        hour.given_up,
        budget.instance,
    )


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(HOURS)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
