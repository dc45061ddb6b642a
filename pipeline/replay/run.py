"""Run `quotas.replay` inside Spark, which turns charges into the hours of each budget.

Charges are sorted by budget and time within each partition, and streamed through Python in batches. The state
of the current budget is carried from one batch to the next, so that memory holds only one batch;
`applyInPandas` would hold a whole budget. The charges of one budget are replayed in sequence, on one core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.types import StringType, StructField, StructType

from weir.pipeline.tables import REPLAY
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import INT32_MAX
from weir.quotas.replay import PATIENCE_MS, Replay
from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_table import QuotaKey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from weir.quotas.replay_hours import Hour

BUDGET: Final = (
    "candidate",
    "quota",
    "of_user",
    "of_client_id",
    "of_prefix",
    "instance",
    "broker",
    "limit",
    "pacing",
)
"""Columns that identify a budget in the charges. Each instance of Weir has its own budgets; a restarted Weir
is a new instance.
"""
CHARGE: Final = ("at_ms", "service_ms", "value", "connection", "recorded_ms", "note")
HOURS: Final = StructType([*REPLAY.fields, StructField("instance", StringType())])
ROWS: Final = 10_000
"""Number of result rows (hours of budgets) that are collected before they are returned to Spark as one batch.
"""


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """Settings for the replayed budgets, as in the configuration of `weir run`, and the assumed timeout of
    clients.
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

    def replay(self, quota: str, limit: float, pacing: str) -> Replay:
        """Return a replay that has no charges yet, of one budget with this quota, limit and pacing."""
        key = QuotaKey(quota)
        of_controller = key is QuotaKey.CONTROLLER_MUTATION_RATE
        return Replay(
            key,
            limit,
            num_samples=self.controller_num_samples if of_controller else self.num_samples,
            window_s=self.controller_window_s if of_controller else self.window_s,
            patience_ms=self.patience_ms,
            throttle_ms_max=self.throttle_ms_max,
            hold=self.hold,
            pacing=Pacing(pacing),
        )


def hours(charges: DataFrame, draws: DataFrame, settings: BudgetSettings) -> DataFrame:
    """Replay charges (`pipeline.replay.charges`) against the budgets in `draws`; return the hours of each
    budget (`HOURS`).
    """
    joined = charges.join(draws, ["quota", "user", "client_id"]).withColumn(
        "broker", F.when(F.col("scope") != Scope.CLUSTER.value, F.col("broker"))
    )
    budget = F.xxhash64(*BUDGET)
    wanted = joined.select(budget.alias("budget"), *BUDGET, *CHARGE)
    rank = F.col("recorded_ms"), F.col("value") == 0  # the order of `quotas.replay.rank`
    in_order = wanted.repartition("budget").sortWithinPartitions(
        "budget", *BUDGET, "at_ms", *rank, "connection"
    )

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replayed(batches, settings)

    return in_order.mapInArrow(run, HOURS)


def replayed(batches: Iterable[pa.RecordBatch], settings: BudgetSettings) -> Iterator[pa.RecordBatch]:
    """Replay charges that are sorted by budget and time; yield the hours of each budget (`HOURS`). The result
    is the same for any division of the charges into batches.
    """
    rows: list[tuple[object, ...]] = []
    at_hand: tuple[object, ...] | None = None
    replay: Replay | None = None
    for batch in batches:
        for start, stop, budget in _runs(batch):
            if budget != at_hand:
                if replay is not None and at_hand is not None:
                    rows += _rows(at_hand, replay.finish())
                at_hand, replay = (
                    budget,
                    settings.replay(str(budget[1]), float(str(budget[7])), str(budget[8])),
                )
            assert replay is not None
            replay.feed(*(_numbers(batch, name, start, stop) for name in CHARGE))
            rows += _rows(budget, replay.take())
            if len(rows) >= ROWS:
                yield _batch(rows)
                rows = []
    if replay is not None and at_hand is not None:
        rows += _rows(at_hand, replay.finish())
    yield _batch(rows)


def _numbers(batch: pa.RecordBatch, name: str, start: int, stop: int) -> list[int]:
    numbers: list[int] = batch.column(name).slice(start, stop - start).to_numpy().tolist()
    return numbers


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, int, tuple[object, ...]]]:
    """Yield (first row, row after the last, budget) for each series of consecutive rows with the same budget.

    The function compares hashes of budgets, so that names are read twice per budget instead of once per row.
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


def _budget(batch: pa.RecordBatch, row: int) -> tuple[object, ...]:
    return tuple(batch.column(name)[row].as_py() for name in BUDGET)


def _rows(budget: tuple[object, ...], past: list[Hour]) -> list[tuple[object, ...]]:
    """Return the replayed hours of a budget as rows with the columns `HOURS`."""
    candidate, quota, user, client_id, prefix, instance, broker, limit, _pacing = budget
    client = f"{prefix}*" if prefix else client_id or None
    return [
        (
            candidate,
            quota,
            user or None,
            client,
            broker,
            hour.start_ms,
            limit,
            hour.charged,
            hour.charges,
            hour.violations,
            hour.throttle_ms,
            hour.throttled_ms / 1000,
            hour.first_ms,
            hour.last_ms,
            hour.given_up,
            instance,
        )
        for hour in past
    ]


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(HOURS)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
