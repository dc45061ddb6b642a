"""The report's queries on Spark, over tables that ingest and rollup write. Expected values are computed by
hand.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tests.pipeline.report_pages import HOSTILE
from tests.pipeline.usage_rows import FIRST_DAY, FIRST_MS, ingest, record
from weir.pipeline import tables
from weir.pipeline.lake import Lake, replace
from weir.pipeline.report.data import find
from weir.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    Bounds,
    CandidateResult,
    EntityCounts,
    Ingested,
    ReportOptions,
    Use,
)
from weir.pipeline.report.names import ReportEntity
from weir.pipeline.report.prices import Prices
from weir.pipeline.report.showback import showback, showback_of_groups
from weir.pipeline.rollup.columns import ROLLUP
from weir.pipeline.rollup.job import rollup
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark

A, B = ReportEntity("u", "a"), ReportEntity("u", "b")
_THROTTLED = [name for name in tables.REPLAY.names if name.startswith("throttled_s")] * 2
"""The columns with bounds of throttled time, or twice the one column that has both."""
NOTHING = dict.fromkeys(ByQuota.__struct_fields__, 0)


def write(spark: SparkSession, path: str, columns: StructType, *rows: dict[str, object]) -> None:
    full = [{name: row.get(name) for name in columns.names} for row in rows]
    replace(spark.createDataFrame(pa.Table.from_pylist(full, to_arrow_schema(columns)), columns), path)


def produced(time_ms: int, client_id: str, bytes_: int, **values: object) -> dict[str, object]:
    amounts = {"requests": 1, "bytes_in": bytes_, "bytes_out": 0, "charged_bytes": bytes_}
    return record(time_ms, client_id=client_id, **amounts, **values)


def used(spark: SparkSession, lake: Lake, wanted: ReportOptions | None = None) -> Use:
    use = find(spark, lake, wanted or ReportOptions()).use
    assert use is not None
    return use


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with two clients on two days: `a` at brokers 1 and 2, `b` at broker 1."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    waited = NOTHING | {"producer_byte_rate": 500}
    made = [
        produced(0, "a", 30_000, broker=1),
        produced(0, "a", 10_000, broker=2),
        produced(10_000, "b", 20_000, throttle_ms=waited, violations=waited),
        produced(2 * HOUR_MS, "a", 40_000, broker=1),
        produced(DAY_MS, "b", 5_000),
        produced(0, "elsewhere", 10**9, cluster="other"),
        record(0, client_id="a", api="mutations", requests=1, mutations=36),
    ]
    ingest(spark, lake, made)
    rollup(spark, lake)
    line: dict[str, object] = {"kind": "usage", "cluster": "default", "line": "x", "reason": "no JSON"}
    write(spark, lake.rejected, tables.REJECTED, line, line, line | {"kind": "trace"})
    return lake


def test_the_report_reads_one_cluster(spark: SparkSession, lake: Lake) -> None:
    use = used(spark, lake, ReportOptions("other"))
    assert [(each.entity.client_id, each.bytes_in) for each in use.clients] == [("elsewhere", 10**9)]


def test_the_report_finds_the_recorded_time(spark: SparkSession, lake: Lake) -> None:
    """The first record begins an hour, and the last one lasts a second."""
    columns = used(spark, lake).columns
    assert (columns.from_ms, columns.count, columns.word) == (FIRST_MS, 25, "hour")
    assert [(at, s) for at, s in enumerate(columns.recorded_s) if s] == [(0, 3600), (2, 3600), (24, 1)]


def test_rates_of_the_report_are_over_half_a_recorded_minute(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [produced(1000 * second, "a", 1_000_000) for second in range(100, 130)])
    rollup(spark, lake)
    use = used(spark, lake)
    assert use.columns.recorded_s == (30.0,)
    assert use.columns.rate(use.bytes_) == 1_000_000
    assert use.brokers[1]["producer_byte_rate"] == (1_000_000.0,)
    assert use.clients[0].means["producer_byte_rate"] == (1_000_000.0,)


def test_the_report_sums_up_entities_brokers_and_columns(spark: SparkSession, lake: Lake) -> None:
    use = used(spark, lake)
    assert [(at, value) for at, value in enumerate(use.bytes_) if value] == [(0, 6e4), (2, 4e4), (24, 5e3)]
    assert (use.count, use.brokers_left) == (2, 0)
    assert list(use.brokers) == [1, 2]
    assert use.brokers[1]["producer_byte_rate"][0] == 50_000 / 3600
    assert use.brokers[2]["producer_byte_rate"][0] == 10_000 / 3600
    clients = {each.entity: each for each in use.clients}
    a, b = clients[A], clients[B]
    peaks = {"producer_byte_rate": 4000, "controller_mutation_rate": 3.6}
    assert (a.entity, a.bytes_in, a.requests, a.peaks) == (A, 80_000, 4, peaks)
    assert (a.brokers, a.busiest_broker, a.skew) == (2, 1, 70_000 / 40_000)
    assert a.means["producer_byte_rate"][0] == 30_000 / 3600  # at the busiest broker
    assert (a.throttle_s, b.throttle_s) == ({}, {"producer_byte_rate": 0.5})
    assert (b.entity, b.highs["producer_byte_rate"][24], b.bytes_[24]) == (B, 500, 5000)


def test_the_report_compares_the_last_week_with_the_week_before(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    waited = NOTHING | {"producer_byte_rate": 2000}
    made = [
        produced(0, "a", 1, throttle_ms=waited),
        produced(0, "b", 1),
        produced(8 * DAY_MS, "b", 1, throttle_ms=waited),
    ]
    ingest(spark, lake, made)
    rollup(spark, lake)
    assert used(spark, lake).weeks == (EntityCounts(1, 1, 2.0), EntityCounts(2, 1, 2.0))


def test_the_report_of_a_long_time_has_daily_columns(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [produced(0, "a", 100), produced(20 * DAY_MS, "a", 300)])
    rollup(spark, lake)
    use = used(spark, lake)
    assert (use.columns.word, use.columns.count) == ("day", 21)
    assert (use.clients[0].bytes_[0], use.clients[0].bytes_[20]) == (100, 300)


def test_the_report_shows_users_of_the_chosen_days(spark: SparkSession, lake: Lake) -> None:
    second = FIRST_DAY + timedelta(days=1)
    use = used(spark, lake, ReportOptions(level="user", days=(second, second)))
    assert [(each.entity, each.total) for each in use.clients] == [(ReportEntity("u", None), 5000)]


def test_showback_sums_up_the_use_of_each_entity_and_its_price(spark: SparkSession, tmp_path: Path) -> None:
    lake, used = Lake(str(tmp_path)), {"bytes_in": 10**9, "bytes_out": 10**9, "request_time_us": 3600 * 10**6}
    waits = [NOTHING | {"producer_byte_rate": 500}, NOTHING | {"request_percentage": 1000}]
    of_b = {"client_id": "b", "broker": 1, "requests": 2, **used, "throttle_ms": waits[0]}
    of_b_fetching = of_b | {"broker": 2, "requests": 3, "bytes_out": 2 * 10**9, "throttle_ms": waits[1]}
    of_a = {"client_id": "a", "broker": 1, "requests": 2}
    of_day = {"cluster": "default", "seconds": 86_400, "day": FIRST_DAY, "start_ms": FIRST_MS, "user": "u"}
    pairs = [of_day | row | {"level": "user-client-id"} for row in (of_a, of_b, of_b_fetching)]
    users = [row | {"level": "user", "client_id": None} for row in pairs]
    others = [row | {"cluster": "other"} for row in pairs] + [row | {"seconds": 3600} for row in pairs]
    write(spark, lake.rollup, ROLLUP, *pairs, *users, *others)
    prices = Prices("EUR", in_per_gb=1, out_per_gb=0.25, request_time_per_h=10)
    found, of_users = (
        showback(spark, lake, ReportOptions(level=each), prices) for each in ("user-client-id", "user")
    )
    bytes_, rest = (2 * 10**9, 3 * 10**9), (7200.0, 1.5, 22.75)
    assert found.rows() == [("u", "b", *bytes_, 5, *rest), ("u", "a", 0, 0, 2, 0.0, 0.0, 0.0)]
    assert of_users.rows() == [("u", *bytes_, 7, *rest)]


def test_showback_of_groups_sums_up_the_records_of_their_clients(spark: SparkSession, tmp_path: Path) -> None:
    lake, day = Lake(str(tmp_path)), FIRST_DAY + timedelta(days=1)
    wanted, prices = ReportOptions(days=(day, day)), Prices("EUR", in_per_gb=1)
    waits = {"throttle_ms": NOTHING | {"producer_byte_rate": 500, "request_percentage": 1000}}
    made = [produced(DAY_MS, name, 10**9, group="pay", **waits) for name in "ab"]
    others = [produced(DAY_MS, "d", 5, group="pay", cluster="other"), produced(0, "a", 5, group="old")]
    ingest(spark, lake, [produced(DAY_MS, "c", 7)])
    assert showback_of_groups(spark, lake, wanted, prices).rows() == []
    ingest(spark, lake, [*made, *others])
    first, last = showback_of_groups(spark, lake, wanted, prices).rows()
    assert (first, last[:4]) == (("pay", 2 * 10**9, 0, 2, 0.0, 3.0, 2.0), ("", 7, 0, 1))


def test_the_report_shows_ingest_counts_and_reasons_of_rejected_lines(
    spark: SparkSession, lake: Lake
) -> None:
    usage, trace = find(spark, lake, ReportOptions()).ingested
    assert usage == Ingested("usage", 6, 2, [("no JSON", 2)])
    assert trace == Ingested("trace", 0, 1, [("no JSON", 1)])


def test_the_report_reads_proposals_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    quota = {"quota": "producer_byte_rate", "cluster": "default"}
    proposed = {"user": "u", "client_id": "a", "used": 1.0, "proposed": 3.0, "flags": ["new"], **quota}
    write(spark, lake.recommendation, tables.RECOMMENDATION, proposed)
    counts = {"violations": 1, "given_up": 0, "demand": "recorded"}
    hour = {"client_id": "a", "start_ms": FIRST_MS, **counts, **quota}
    lower, upper = _THROTTLED[:2]
    rows = [
        hour | {"candidate": "next.toml", lower: 5.0, upper: 5.0},
        hour | {"candidate": "next.toml", lower: 2.0, upper: 2.0, "broker": 2},
        hour | {"candidate": "recorded", lower: 1.0, upper: 1.0},
        hour | {"candidate": "unknown.toml", lower: None, upper: None, "demand": "unknown"},
    ]
    write(spark, lake.replay, tables.REPLAY, *rows)
    found = find(spark, lake, ReportOptions())
    (proposal,) = found.proposals
    assert (proposal.entity, proposal.used, proposal.current, proposal.flags) == (A, 1, None, ("new",))
    span = FIRST_MS, FIRST_MS + 3_600_000
    assert found.candidates == [
        CandidateResult("recorded", {"producer_byte_rate": Bounds(1, 1)}, 1, 0, *span),
        CandidateResult("next.toml", {"producer_byte_rate": Bounds(7, 7)}, 2, 0, *span),
        CandidateResult("unknown.toml", {"producer_byte_rate": Bounds(0, None)}, None, None, *span),
    ]
    day = FIRST_DAY - timedelta(days=1)
    assert find(spark, lake, ReportOptions(days=(day, day))).candidates == []


def test_the_report_reads_hostile_names_from_spark_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest(spark, lake, [produced(0, name, 1) for name in HOSTILE])
    rollup(spark, lake)
    shown = [each.entity.client_id for each in used(spark, lake).clients]
    assert shown == sorted(HOSTILE)  # equal values are ordered by name
