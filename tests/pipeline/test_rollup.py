"""The roll-up compared to a plain Python computation of its definition, and its choice of days."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.pipeline.rollup_definition import QUOTAS, Key, expected
from tests.pipeline.usage_rows import DAY_MS, FIRST_MS, Record, ingest, record
from tests.properties import TOLERATED
from weir.pipeline import lake as delta
from weir.pipeline import tables
from weir.pipeline.lake import Lake, read, sql_name
from weir.pipeline.outcome import PipelineError
from weir.pipeline.rollup.columns import PERIODS, ROLLUP
from weir.pipeline.rollup.compute import rolled
from weir.pipeline.rollup.job import rollup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


def rows_of(spark: SparkSession, lake: Lake, period: str = "hour") -> list[Row]:
    return read(spark, lake.rollup, ROLLUP).where(f"seconds = {PERIODS[period]}").collect()


def row_of(rows: Iterable[Row], level: str = "user-client-id") -> Row:
    (row,) = [row for row in rows if row.level == level]
    return row


counts = st.one_of(st.none(), st.integers(0, 1000))
by_quotas = st.one_of(st.none(), st.fixed_dictionaries({quota: st.integers(0, 2) for quota in QUOTAS}))
records = st.lists(
    st.builds(
        record,
        time_ms=st.one_of(
            st.integers(0, 60_000), st.integers(0, 3 * DAY_MS // 24), st.integers(0, 2 * DAY_MS - 1)
        ),
        cluster=st.sampled_from(["default", "it's"]),
        broker=st.sampled_from([None, -1, 0, 1, 2]),
        user=st.sampled_from(["", "alice", "bob"]),
        client_id=st.sampled_from(["", "app", "ä\t"]),
        api=st.sampled_from(["produce", "fetch", "mutations", "a group of next year"]),
        **dict.fromkeys(
            ("requests", "bytes_in", "bytes_out", "charged_bytes", "mutations", "errors", "old_bytes"), counts
        ),
        request_time_us=st.one_of(st.none(), st.integers(0, 4_000_000).map(lambda quarters: quarters / 4)),
        throttle_ms=by_quotas,
        violations=by_quotas,
    ),
    min_size=1,
    max_size=40,
)


def found_in(rows: Iterable[Row]) -> dict[Key, dict[str, object]]:
    return {
        (row.cluster, row.level, row.user, row.client_id, row.broker, row.start_ms): row.asDict(
            recursive=True
        )
        for row in rows
    }


def check(rows: Sequence[Row], records: Sequence[Record]) -> None:
    for seconds in PERIODS.values():
        found = found_in(row for row in rows if row.seconds == seconds)
        wanted = expected(records, seconds)
        assert found.keys() == wanted.keys()
        for key, row in wanted.items():
            assert found[key]["day"] == datetime.fromtimestamp(key[-1] / 1000, UTC).date()
            for column, value in row.items():
                nearly = None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)
                assert found[key][column] == nearly, (key, column)


@settings(
    max_examples=2,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes seconds: too long to shrink
    suppress_health_check=[*TOLERATED, HealthCheck.function_scoped_fixture],
)
@given(records=records, buckets=st.integers(1, 3))
def test_rollups_of_hours_and_days_match_a_plain_computation(
    spark: SparkSession, records: list[Record], buckets: int
) -> None:
    usage = spark.createDataFrame([dict(each) for each in records], tables.USAGE).repartition(2)
    check(rolled(usage, 10, 2, buckets).collect(), records)


def computed(spark: SparkSession, records: Iterable[Record]) -> list[Row]:
    """Return the hours of users that records are rolled up to."""
    rows = rolled(spark.createDataFrame([dict(each) for each in records], tables.USAGE), 10, 2, 1).collect()
    return [row for row in rows if (row.level, row.seconds) == ("user", PERIODS["hour"])]


def test_rollup_counts_mutations_of_all_brokers_together(spark: SparkSession) -> None:
    """Kafka limits mutations in the whole cluster, so that each broker's share has no percentile."""
    throttled = {**dict.fromkeys(QUOTAS, 0), "controller_mutation_rate": 70}
    refused = {**dict.fromkeys(QUOTAS, 0), "controller_mutation_rate": 3}
    made = [
        record(0, broker=1, api="mutations", requests=1, mutations=20, throttle_ms=throttled),
        record(0, broker=2, api="mutations", requests=2, mutations=30),
        record(10_000, broker=2, api="mutations", requests=4, mutations=10),
        record(20_000, broker=2, api="mutations", requests=8, violations=refused),  # none was carried out
    ]
    found = {row.broker: row for row in computed(spark, made)}
    assert {broker: (row.requests, row.mutations) for broker, row in found.items()} == {
        1: (1, 0),
        2: (14, 0),
        -1: (0, 60),
    }
    assert (found[1].active_s, found[2].active_s, found[-1].active_s) == (10, 30, 30)
    assert found[-1].violations.controller_mutation_rate == 3
    assert found[-1].controller_mutation_rate.max == 5
    assert found[-1].controller_mutation_rate.p50 == 3
    assert found[1].throttle_ms is None
    assert found[-1].throttle_ms.controller_mutation_rate == 70
    assert found[-1].throttled_s.controller_mutation_rate == 10


def test_rollup_counts_a_record_in_the_hour_where_its_interval_began(spark: SparkSession) -> None:
    hours = computed(spark, [record(3_599_999, requests=1), record(3_600_000, requests=2)])
    assert {(row.start_ms - FIRST_MS, row.requests) for row in hours} == {(0, 1), (3_600_000, 2)}


def test_rollup_of_a_lake_without_usage_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    outcome = rollup(spark, Lake(str(tmp_path / "missing")))
    assert outcome.read == {"records": 0, "days": 0}
    assert "no usage found" in outcome.notes[0]
    assert not (tmp_path / "missing").exists()


def test_a_rollup_computes_only_days_with_new_records(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS, requests=1) for day in range(3)])
    first = rollup(spark, lake)
    assert first.read == {"records": 3, "days": 3}
    assert first.wrote == {"hours of entities": 9, "days of entities": 9}

    ingest(spark, lake, [record(DAY_MS + 5, requests=10)])
    second = rollup(spark, lake)
    assert second.read == {"records": 2, "days": 1}
    assert second.notes == ("rolled up: 2026-03-02", "unchanged: 2026-03-01, 2026-03-03")
    requests = {str(row.day): row.requests for row in rows_of(spark, lake, "day") if row.level == "user"}
    assert requests == {"2026-03-01": 1, "2026-03-02": 11, "2026-03-03": 1}

    version = versions(spark, lake)
    assert rollup(spark, lake).read == {"records": 0, "days": 0}
    assert versions(spark, lake) == version


def versions(spark: SparkSession, lake: Lake) -> int:
    return spark.sql(f"DESCRIBE HISTORY {sql_name(lake.rollup)}").count()


def test_rollups_of_clusters_stay_apart(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, requests=1), record(0, requests=2, cluster="o'\\east")])
    rollup(spark, lake)
    ingest(spark, lake, [record(1, requests=4, cluster="o'\\east")])
    outcome = rollup(spark, lake)
    assert outcome.notes == ("rolled up: 2026-03-01", "unchanged: 2026-03-01")
    found = {row.cluster: row.requests for row in rows_of(spark, lake) if row.level == "user"}
    assert found == {"default": 1, "o'\\east": 6}


def test_rollup_recomputes_a_day_on_request_or_with_other_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, charged_bytes=600)])
    rollup(spark, lake)
    assert rollup(spark, lake, again=True).read["days"] == 1
    assert row_of(rows_of(spark, lake)).producer_byte_rate.max == 60
    assert rollup(spark, lake, window_s=60).read["days"] == 1
    assert row_of(rows_of(spark, lake)).producer_byte_rate.max == 10


def test_rollup_computes_the_chosen_days(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS) for day in range(3)])
    outcome = rollup(spark, lake, days=(date(2026, 3, 2), date(2026, 3, 2)))
    assert outcome.notes == ("rolled up: 2026-03-02",)
    assert {str(row.day) for row in rows_of(spark, lake)} == {"2026-03-02"}
    assert rollup(spark, lake).read == {"records": 3, "days": 3}


def test_rollup_that_fails_before_its_write_is_repeated_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, requests=1), record(DAY_MS, requests=2)])

    def failing(_rows: DataFrame, _path: str, _where: str) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(delta, "replace", failing)
        with pytest.raises(Exception, match="no space left"):
            rollup(spark, lake)
    assert rollup(spark, lake).read == {"records": 2, "days": 2}


def test_rollup_that_is_overtaken_by_another_contains_the_newest_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, requests=1)])
    write = delta.replace

    def overtaken(rows: DataFrame, path: str, where: str) -> None:
        monkeypatch.setattr(delta, "replace", write)
        ingest(spark, lake, [record(1000, requests=2)])
        rollup(spark, lake)
        write(rows, path, where)

    monkeypatch.setattr(delta, "replace", overtaken)
    rollup(spark, lake, again=True)
    assert row_of(rows_of(spark, lake), "user").requests == 3


def test_rollup_skips_rewritten_files_of_usage(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction and retention change files, not records."""
    lake = Lake(str(tmp_path))
    for second in range(3):
        ingest(spark, lake, [record(1000 * second, requests=1)])
    ingest(spark, lake, [record(DAY_MS, requests=1)])
    rollup(spark, lake)
    spark.sql(f"OPTIMIZE {sql_name(lake.usage)}")
    assert rollup(spark, lake).read["days"] == 0
    spark.sql(f"DELETE FROM {sql_name(lake.usage)} WHERE day = DATE'2026-03-01'")  # noqa: S608  # our table
    assert rollup(spark, lake).read["days"] == 0
    requests = {str(row.day): row.requests for row in rows_of(spark, lake, "day") if row.level == "user"}
    assert requests == {"2026-03-01": 3, "2026-03-02": 1}


def test_rollup_notes_records_longer_than_its_windows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, interval_ms=60_000)])
    assert "some records span 60 s, longer than windows of 10 s" in rollup(spark, lake).notes[-1]
    assert len(rollup(spark, lake, window_s=60).notes) == 1


@pytest.mark.parametrize("window_s", [0, -10, 7, 7200])
def test_rollup_refuses_windows_that_do_not_divide_an_hour(
    spark: SparkSession, tmp_path: Path, window_s: int
) -> None:
    with pytest.raises(PipelineError, match="do not fill an hour"):
        rollup(spark, Lake(str(tmp_path)), window_s=window_s)
