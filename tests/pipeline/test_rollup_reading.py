"""Queries of roll-ups, with results computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.usage_rows import ingest, record
from weir.pipeline.lake import Lake
from weir.pipeline.rollup import reading
from weir.pipeline.rollup.job import rollup
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
THROTTLED = {**dict.fromkeys(ByQuota.__struct_fields__, 0), "producer_byte_rate": 500}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Return a lake with two clients: `a` at brokers 1 and 2 in two hours, `b` at broker 1 in the second."""
    lake = Lake(str(tmp_path))
    charged = {"requests": 1, "bytes_in": 36_000, "charged_bytes": 36_000}
    made = [
        record(0, client_id="a", broker=1, **charged, throttle_ms=THROTTLED, violations=THROTTLED),
        record(0, client_id="a", broker=2, requests=3, bytes_in=108_000, charged_bytes=108_000),
        record(10_000, client_id="a", broker=2, api="mutations", requests=1, mutations=360),
        record(HOUR_MS, client_id="a", broker=1, **charged),
        record(HOUR_MS, client_id="b", broker=1, requests=2, bytes_in=72_000, charged_bytes=72_000),
    ]
    ingest(spark, lake, made)
    rollup(spark, lake)
    return lake


def test_rates_are_those_of_each_broker_and_quota(spark: SparkSession, lake: Lake) -> None:
    found = reading.rates(reading.rows(spark, lake).where("level = 'user-client-id'"))
    rows = found.where("client_id = 'a'").orderBy("start_ms", "broker").collect()
    assert [(row.broker, row.quota, row.mean, row.p95, row.max) for row in rows] == [
        (-1, "controller_mutation_rate", 0.1, 36, 36),
        (1, "producer_byte_rate", 10, 3600, 3600),
        (2, "producer_byte_rate", 30, 10_800, 10_800),
        (1, "producer_byte_rate", 10, 3600, 3600),
    ]
    assert [(row.throttle_ms, row.throttled_s) for row in rows] == [(0, 0), (500, 10), (0, 0), (0, 0)]


def test_rows_are_chosen_by_period_and_cluster(spark: SparkSession, lake: Lake) -> None:
    assert reading.rows(spark, lake, "day", cluster="default").where("level = 'user'").count() == 3
    assert reading.rows(spark, lake, "day", cluster="other").count() == 0
    assert reading.rows(spark, Lake(f"{lake.root}/missing"), "hour").count() == 0
