"""The bucket of an entity in a roll-up, without Spark."""

from __future__ import annotations

from datetime import date

import polars as pl
import pyarrow as pa
import pytest

from weir.pipeline.arrow import table, unpacked
from weir.pipeline.rollup import columns, compute
from weir.pipeline.rollup.job import Day, _named


def records(count: int) -> pa.RecordBatch:
    """Return records of this number of clients, in the columns that the job takes out of Spark."""
    clients = pl.DataFrame({"number": range(count)}).select(
        cluster=pl.lit("east"),
        user=pl.format("u{}", pl.col("number") % 5),
        client_id=pl.format("c{}", "number"),
        user_hash=(pl.col("number") % 5 + 1) * 7919,
        client_id_hash=(pl.col("number") + 1) * 104_729,
        broker=pl.col("number") % 3,
        window_ms=pl.lit(0),
        **{name: pl.lit(1, pl.Int64) for name in columns.AMOUNTS},
        by_quota=pl.lit(None, pl.List(pl.Int64)),
    )
    (batch,) = table(clients).to_batches()
    return batch


def buckets(count: int) -> dict[tuple[object, ...], int]:
    found = dict[tuple[object, ...], int]()
    for batch in compute._packed(iter([records(count)]), 4):
        for bucket, rows in zip(batch.column("bucket").to_pylist(), batch.column("rows"), strict=True):
            found |= dict.fromkeys(unpacked(rows).select(compute._OWNER).rows(), bucket)
    return found


def test_bucket_of_an_entity_is_the_same_with_another_release_of_polars(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise one hour of an entity became two rows with half its rate each."""
    before, hashed = buckets(40), pl.Expr.hash
    monkeypatch.setattr(pl.Expr, "hash", lambda self, seed=0: hashed(self, seed + 1))
    assert buckets(40) == before
    assert len(set(before.values())) == 4


def test_days_of_several_clusters_are_counted_once() -> None:
    """Eight days of two clusters were told as 16 days."""
    days = [Day(cluster, date(2026, 11, number)) for cluster in ("east", "west") for number in range(1, 9)]
    assert _named(days) == "8 days from 2026-11-01 to 2026-11-08, of 2 clusters"
