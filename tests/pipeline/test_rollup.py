"""The roll-up compared to a plain Python computation of its definition."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.pipeline.usage_rows import DAY_MS, FIRST_MS, Record, ingest, record
from tests.properties import TOLERATED, examples
from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import PipelineError
from weir.pipeline.rollup.job import rollup
from weir.pipeline.rollup.periods import periods
from weir.pipeline.rollup.windows import windows
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

WINDOW_MS: Final = 10_000
NO_QUOTA: Final = dict.fromkeys(ByQuota.__struct_fields__, 0)
Key = tuple[str, object, object, int]
"""Key of an expected row: level, user, client-id, start (ms)."""


def rolled(spark: SparkSession, lake: Lake, period: str = "hour") -> list[Row]:
    return tables.read(spark, lake.rollup(period), tables.ROLLUP).collect()


def row_of(rows: Iterable[Row], level: str = "user-client-id") -> Row:
    (row,) = [row for row in rows if row.level == level]
    return row


# The definition, in Python.


def number(record: Record, name: str) -> float:
    value = record[name]
    assert value is None or isinstance(value, (int, float))
    return value or 0


def by_quota(record: Record, name: str, quota: str) -> int:
    value = record[name]
    assert value is None or isinstance(value, dict)
    return (value or NO_QUOTA)[quota]


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, interpolated between the two nearest ranks."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low, high = math.floor(at), math.ceil(at)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def entities(record: Record) -> list[tuple[str, object, object]]:
    user, client_id = record["user"] or "", record["client_id"] or ""
    return [("user-client-id", user, client_id), ("user", user, None), ("client-id", None, client_id)]


def rate(mean: float, values: Sequence[float]) -> dict[str, float]:
    values = values or [0.0]
    shares = {name: percentile(values, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    return {"mean": mean, **shares, "max": max(values)}


def expected(records: Sequence[Record], seconds: int) -> dict[Key, dict[str, object]]:
    groups: dict[Key, list[Record]] = defaultdict(list)
    for each in records:
        start_ms = int(number(each, "time_ms")) // (seconds * 1000) * seconds * 1000
        for entity in entities(each):
            groups[*entity, start_ms].append(each)
    return {key: summed(mine, seconds) for key, mine in groups.items()}


def summed(mine: Sequence[Record], seconds: int) -> dict[str, object]:
    """Return the expected row of the roll-up, from an entity's records of one period."""

    def total(name: str, of: Sequence[Record] = mine, api: str | None = None) -> float:
        return sum(number(each, name) for each in of if api is None or each["api"] == api)

    def window(each: Record) -> int:
        return int(number(each, "time_ms")) // WINDOW_MS

    def values(name: str, api: str | None, unit: float) -> list[float]:
        """Return sums by broker and window with a value above 0."""
        cells = defaultdict(list)
        for each in mine:
            cells[each["broker"], window(each)].append(each)
        found = (total(name, cell, api) / 10 * unit for cell in cells.values())
        return [value for value in found if value > 0]

    brokers = defaultdict(list)
    whole = defaultdict(list)
    for each in mine:
        brokers[each["broker"]].append(each)
        whole[window(each)].append(each)
    size = {broker: total("bytes_in", of) + total("bytes_out", of) for broker, of in brokers.items()}
    busiest = max(
        brokers, key=lambda broker: (size[broker], total("requests", brokers[broker]), -int(str(broker)))
    )
    there = brokers[busiest]
    everything = sum(size.values())
    return {
        "seconds": seconds,
        **{
            name: total(name)
            for name in ("requests", "bytes_in", "bytes_out", "request_time_us", "mutations", "errors")
        },
        "produced_bytes": total("charged_bytes", api="produce"),
        "fetched_bytes": total("charged_bytes", api="fetch"),
        "producer_byte_rate": rate(
            total("charged_bytes", there, "produce") / seconds, values("charged_bytes", "produce", 1)
        ),
        "consumer_byte_rate": rate(
            total("charged_bytes", there, "fetch") / seconds, values("charged_bytes", "fetch", 1)
        ),
        "request_percentage": rate(
            total("request_time_us", there) / 1e6 / seconds * 100, values("request_time_us", None, 1e-6 * 100)
        ),
        "controller_mutation_rate": rate(
            total("mutations") / seconds,
            [total("mutations", of) / 10 for of in whole.values() if total("mutations", of)],
        ),
        "active_s": 10 * len(whole),
        **{
            name: {quota: sum(by_quota(each, name, quota) for each in mine) for quota in NO_QUOTA}
            for name in ("throttle_ms", "violations")
        },
        "throttled_s": {
            quota: 10 * sum(any(by_quota(each, "throttle_ms", quota) for each in of) for of in whole.values())
            for quota in NO_QUOTA
        },
        "brokers": len(brokers),
        "busiest_broker": busiest,
        "skew": size[busiest] / (everything / len(brokers)) if everything else 1,
    }


counts = st.one_of(st.none(), st.integers(0, 1000))
by_quotas = st.one_of(st.none(), st.fixed_dictionaries({quota: st.integers(0, 2) for quota in NO_QUOTA}))
records = st.lists(
    st.builds(
        record,
        time_ms=st.one_of(
            st.integers(0, 60_000), st.integers(0, 3 * DAY_MS // 24), st.integers(0, 2 * DAY_MS - 1)
        ),
        broker=st.sampled_from([-1, 0, 1, 2]),
        user=st.sampled_from(["", "alice", "bob"]),
        client_id=st.sampled_from(["", "app", "ä\t"]),
        api=st.sampled_from(["produce", "fetch", "mutations", "a group of next year"]),
        **dict.fromkeys(
            ("requests", "bytes_in", "bytes_out", "charged_bytes", "mutations", "errors"), counts
        ),
        request_time_us=st.one_of(st.none(), st.integers(0, 4_000_000).map(lambda quarters: quarters / 4)),
        throttle_ms=by_quotas,
        violations=by_quotas,
    ),
    min_size=1,
    max_size=40,
)


@settings(
    examples(6),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # an example takes seconds: too long to shrink
    suppress_health_check=[*TOLERATED, HealthCheck.function_scoped_fixture],
)
@given(records=records)
def test_rollups_of_hours_and_days_match_a_plain_computation(
    spark: SparkSession, records: list[Record]
) -> None:
    usage = spark.createDataFrame([dict(each) for each in records], tables.USAGE)
    kept = windows(usage, WINDOW_MS, 2).cache()
    for seconds in (3600, 86_400):
        found = {
            (row.level, row.user, row.client_id, row.start_ms): row.asDict(recursive=True)
            for row in periods(kept, seconds, 10).collect()
        }
        wanted = expected(records, seconds)
        assert found.keys() == wanted.keys()
        for key, row in wanted.items():
            for name, value in row.items():
                assert found[key][name] == pytest.approx(value, rel=1e-9, abs=1e-12), (key, name)
            assert found[key]["day"] == datetime.fromtimestamp(key[3] / 1000, UTC).date()
    kept.unpersist()


def test_rollup_counts_a_record_in_the_hour_where_its_interval_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(3_599_999, requests=1), record(3_600_000, requests=2)])
    rollup(spark, lake)
    hours = [row for row in rolled(spark, lake) if row.level == "user"]
    assert {(row.start_ms - FIRST_MS, row.requests) for row in hours} == {(0, 1), (3_600_000, 2)}


def test_rolled_up_sessions_are_a_pairs_maximum_summed_over_pairs(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    apis = [record(0, sessions=3), record(1000, sessions=2, api="fetch")]
    ingest(spark, lake, [*apis, record(0, sessions=4, client_id="d"), record(0, sessions=5, broker=2)])
    rollup(spark, lake)
    rows = rolled(spark, lake)
    assert row_of(rows, "user").sessions_max == 3 + 4
    assert {row.client_id: row.sessions_max for row in rows if row.level == "client-id"} == {"c": 5, "d": 4}


def test_rollup_of_a_lake_without_usage_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    outcome = rollup(spark, Lake(str(tmp_path / "missing")))
    assert outcome.read == {"records": 0, "files": 0}
    assert "no usage found" in outcome.notes[0]
    assert not (tmp_path / "missing").exists()


def test_rollup_of_usage_without_rows_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    Path(lake.usage).mkdir()
    assert rollup(spark, lake).read["records"] == 0
    day = Path(lake.usage, "day=2026-03-01", "batch=0")
    empty = spark.createDataFrame([], tables.USAGE_RECORD)
    empty.coalesce(1).write.parquet(str(day))
    assert rollup(spark, lake).read == {"records": 0, "files": 1}
    assert rolled(spark, lake) == []
    assert rollup(spark, lake).read == {"records": 0, "files": 0}


def contents(directory: str) -> dict[str, tuple[bytes, int]]:
    """Return all files below a directory, and their modification times."""
    files = (file for file in Path(directory).rglob("*.parquet") if file.is_file())
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def only(files: Mapping[str, tuple[bytes, int]], day: str) -> dict[str, tuple[bytes, int]]:
    return {name: file for name, file in files.items() if f"day={day}" in name}


def test_a_late_batch_changes_only_the_rollup_of_its_day(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS, requests=1, batch=0) for day in range(3)])
    first = rollup(spark, lake)
    assert first.read == {"records": 3, "files": 3}
    before = contents(lake.path("rollup"))

    ingest(spark, lake, [record(DAY_MS + 5, requests=10, batch=1)])
    second = rollup(spark, lake)
    after = contents(lake.path("rollup"))
    assert second.read == {"records": 2, "files": 2}
    assert second.wrote == {"hours of entities": 3, "days of entities": 3}
    assert second.notes == ("rolled up: 2026-03-02", "unchanged: 2026-03-01, 2026-03-03")
    for day in ("2026-03-01", "2026-03-03"):
        assert only(before, day) == only(after, day) != {}
    assert not only(before, "2026-03-02").keys() & only(after, "2026-03-02").keys()
    requests = {str(row.day): row.requests for row in rolled(spark, lake, "day") if row.level == "user"}
    assert requests == {"2026-03-01": 1, "2026-03-02": 11, "2026-03-03": 1}


def test_rollup_does_not_rewrite_unchanged_days(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0)])
    rollup(spark, lake)
    before = contents(lake.path("rollup"))
    assert rollup(spark, lake).notes == ("unchanged: 2026-03-01",)
    assert contents(lake.path("rollup")) == before


@pytest.mark.parametrize("why", ["again", "other windows", "a batch written anew"])
def test_rollup_recomputes_a_day_on_request_or_after_a_change(
    spark: SparkSession, tmp_path: Path, why: str
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, charged_bytes=600)])
    rollup(spark, lake)
    if why == "a batch written anew":
        ingest(spark, lake, [record(0, charged_bytes=1200)])
    rollup(spark, lake, window_s=60 if why == "other windows" else 10, again=why == "again")
    most = row_of(rolled(spark, lake)).producer_byte_rate.max
    assert most == {"again": 60, "other windows": 10, "a batch written anew": 120}[why]


def test_rollup_repairs_a_day_killed_between_two_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(0, requests=1), record(DAY_MS, requests=2)])
    write = tables.replace

    def killed(rows: object, path: str, *by: str) -> None:
        if path == lake.rollup("day"):
            raise KeyboardInterrupt
        write(rows, path, *by)  # type: ignore[arg-type]  # arguments are passed on

    with monkeypatch.context() as patch:
        patch.setattr(tables, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            rollup(spark, lake)
    assert {row.requests for row in rolled(spark, lake)} == {1, 2}
    assert rolled(spark, lake, "day") == []
    assert rollup(spark, lake).read["records"] == 2
    for period in ("hour", "day"):
        rows = [row for row in rolled(spark, lake, period) if row.level == "user"]
        assert sorted(row.requests for row in rows) == [1, 2]


def test_rollup_processes_only_the_chosen_days(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [record(day * DAY_MS) for day in range(3)])
    outcome = rollup(spark, lake, days=(date(2026, 3, 2), date(2026, 3, 2)))
    assert outcome.notes == ("rolled up: 2026-03-02",)
    assert {str(row.day) for row in rolled(spark, lake)} == {"2026-03-02"}


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
