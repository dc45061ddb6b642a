"""The report's queries on Spark: sums, shown entities, and bounds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.report_examples import DAY, START_MS, Values, frame, rolled, write_rollup
from tests.pipeline.report_pages import HOSTILE, Page
from weir.pipeline import tables
from weir.pipeline.ingest.ledger import LEDGER
from weir.pipeline.lake import Lake
from weir.pipeline.report.data import Wanted, find
from weir.pipeline.report.job import report
from weir.pipeline.report.model import (
    DAY_MS,
    HOUR_MS,
    Broker,
    Candidate,
    Ingested,
    Replayed,
    Span,
    ThrottledEntity,
)
from weir.pipeline.report.names import Entity
from weir.pipeline.report.plans import recommendations, replay
from weir.pipeline.report.sections import RUN

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.spark

EVERY_THIRD = 3


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return an empty lake."""
    return Lake(str(tmp_path / "lake"))


def write_table(spark: SparkSession, path: str, columns: StructType, rows: list[Values]) -> None:
    frame(spark, columns, rows).coalesce(1).write.parquet(path)


def used(broker: int, **values: object) -> Values:
    """Return a usage record."""
    return {"broker": broker, "day": DAY, "batch": 0, "bytes_in": 0, "bytes_out": 0, "requests": 1, **values}


def replayed(candidate: str, client_id: str, throttled_s: float, **values: object) -> Values:
    """Return an hour of a replay."""
    quota = {"quota": "producer_byte_rate", "start_ms": START_MS, "violations": 1, "given_up": 0}
    return {"candidate": candidate, "client_id": client_id, "throttled_s": throttled_s, **quota, **values}


def test_the_report_without_tables_names_the_jobs_to_run(spark: SparkSession, lake: Lake) -> None:
    pages: list[str] = []
    outcome = report(
        spark,
        lake,
        "report.html",
        wanted=Wanted(),
        made=datetime(2026, 11, 27, tzinfo=UTC),
        version="1",
        write=pages.append,
    )
    assert outcome.notes == tuple(RUN.values())
    assert outcome.read == {"entities": 0}
    assert outcome.where["sections"] == "report.html"
    (page,) = pages
    assert all(said in Page(page).text for said in RUN.values())


def test_the_report_sums_entities_that_it_does_not_show(spark: SparkSession, lake: Lake) -> None:
    """Of seven entities two are shown; the n-th has n bytes per hour, and every third is throttled."""
    rows = [
        rolled(
            "u",
            f"c{n}",
            hour,
            produced_bytes=n,
            bytes_in=10 * n,
            bytes_out=n,
            requests=1,
            producer_byte_rate={"max": float(n + hour)},
            throttle_ms={"producer_byte_rate": 1000 * n} if n % EVERY_THIRD == 0 else {},
        )
        for n in range(1, 8)
        for hour in (0, 2)
    ]
    others = [rolled("u", None, produced_bytes=10**9, level="user")]
    write_rollup(spark, lake, rows + others)
    found = find(spark, lake, Wanted(top=2))

    assert found.overview is not None
    assert found.overview.span == Span(START_MS, START_MS + 3 * HOUR_MS)
    assert (found.overview.entities, found.overview.throttled_entities) == (7, 2)
    assert (found.overview.requests, found.overview.bytes_in, found.overview.bytes_out) == (14, 560, 56)
    assert (found.overview.busiest, found.overview.busiest_bytes) == (Entity("u", "c7"), 154)
    assert found.overview.throttle_s == 18.0

    (produced,) = found.talkers  # no other measure has usage
    assert [(row.entity.client_id, row.total, row.peak) for row in produced.rows] == [
        ("c7", 14, 9.0),
        ("c6", 12, 8.0),
    ]
    assert (produced.rest, produced.rest_count, produced.total) == (30, 5, 56)

    (heat,) = found.heats
    third = START_MS + 2 * HOUR_MS
    assert list(heat.rows) == [
        (Entity("u", "c7"), {START_MS: 7, third: 7}),
        (Entity("u", "c6"), {START_MS: 6, third: 6}),
    ]
    assert heat.rest == {START_MS: 15, third: 15}
    assert heat.rest_count == 5

    assert found.throttled is not None
    assert found.throttled.rows == (
        ThrottledEntity(Entity("u", "c6"), {"producer_byte_rate": 12.0}),
        ThrottledEntity(Entity("u", "c3"), {"producer_byte_rate": 6.0}),
    )
    assert (found.throttled.rest, found.throttled.rest_count) == ({"producer_byte_rate": 0}, 0)
    assert [each.title for each in found.throttled.heats] == ["producer_byte_rate"]
    assert found.spread is None  # the lake has roll-ups, but no records


def test_the_report_shows_users_of_the_chosen_days(spark: SparkSession, lake: Lake) -> None:
    def of_user(user: str, hour: int, produced: int) -> Values:
        return rolled(user, None, hour, level="user", produced_bytes=produced)

    rows = [of_user("alice", 0, 5), of_user("alice", 24, 7), of_user("", 25, 8), of_user("bob", 48, 9)]
    write_rollup(spark, lake, rows)
    second = DAY + timedelta(days=1)
    found = find(spark, lake, Wanted(days=(second, second), level="user"))
    (talkers,) = found.talkers
    assert [(row.entity, row.total) for row in talkers.rows] == [
        (Entity("", None), 8),
        (Entity("alice", None), 7),
    ]
    assert found.heats[0].rows[1] == (Entity("alice", None), {START_MS + DAY_MS: 7})


def test_the_report_of_a_long_time_reads_daily_rollups(spark: SparkSession, lake: Lake) -> None:
    write_rollup(spark, lake, [rolled("u", "c", hour, produced_bytes=1) for hour in (5, 24 * 11)])
    days = [rolled("u", "c", day * 24, seconds=86_400, produced_bytes=100 + day) for day in (0, 11)]
    write_rollup(spark, lake, days, "day")
    (heat,) = find(spark, lake, Wanted()).heats
    assert (heat.columns.step_ms, heat.columns.count) == (DAY_MS, 12)
    assert heat.rows == ((Entity("u", "c"), {START_MS: 100, START_MS + 11 * DAY_MS: 111}),)


def test_the_report_shows_brokers_and_clients_that_use_them_unevenly(spark: SparkSession, lake: Lake) -> None:
    records = [
        used(1, bytes_in=100, bytes_out=50),
        used(1, bytes_in=1),
        used(2, bytes_in=60, request_time_us=2e6),
    ]
    tables.replace(frame(spark, tables.USAGE, records), lake.usage, "day", "batch")
    skewed: Values = {"bytes_in": 300, "bytes_out": 100, "brokers": 2, "skew": 1.5, "busiest_broker": 2}
    write_rollup(
        spark, lake, [rolled("u", "even", bytes_in=900, brokers=3), rolled("u", "skewed", 0, **skewed)]
    )
    spread = find(spark, lake, Wanted()).spread
    assert spread is not None
    assert spread.brokers == (Broker(1, 2, 2, 101, 50, 0.0), Broker(2, 1, 1, 60, 0, 2.0))
    (uneven,) = spread.uneven
    assert (uneven.entity.client_id, uneven.skew, uneven.busiest_broker) == ("skewed", 1.5, 2)
    assert uneven.excess_bytes == 100  # 300 of 400 at one of two brokers, whose mean is 200


def test_the_report_shows_recommendations_with_their_flags(spark: SparkSession, lake: Lake) -> None:
    def proposal(client_id: str, used: float, current: float | None, *flags: str) -> Values:
        values = {"quota": "consumer_byte_rate", "proposed": 50.0, "in_default": False, "reason": "why"}
        return {
            "user": "u",
            "client_id": client_id,
            "used": used,
            "current": current,
            "flags": list(flags),
            **values,
        }

    rows = [
        proposal("a", 1.0, 10.0, "never near"),
        proposal("b", 3.0, 70.0, "never near", "new"),
        proposal("c", 2.0, None),
    ]
    write_table(spark, lake.recommendation, tables.RECOMMENDATION, rows)
    (found,) = recommendations(spark, lake, 2)
    assert [row.entity.client_id for row in found.rows] == ["b", "c"]
    assert (found.quota, found.count, found.raised, found.lowered, found.new) == (
        "consumer_byte_rate",
        3,
        1,
        1,
        1,
    )
    assert found.flags == (("never near", 2), ("new", 1))
    assert (found.rows[0].used, found.rows[0].current, found.rows[0].flags) == (3, 70, ("never near", "new"))


def test_the_report_compares_replay_candidates(spark: SparkSession, lake: Lake) -> None:
    rows = [
        *(replayed("recorded", name, 1.0) for name in "abc"),
        replayed("a.toml", "a", 5.0, broker=1),
        replayed("a.toml", "a", 2.0, broker=2, violations=4, given_up=3),
        replayed("a.toml", "b", 3.0, quota="request_percentage"),
        replayed("a.toml", "never", 0.0, violations=0),
        replayed("a.toml", "another day", 99.0, start_ms=START_MS + DAY_MS),
    ]
    write_table(spark, lake.replay, tables.REPLAY, rows)
    found = replay(spark, lake, (DAY, DAY), 1)
    assert found is not None
    nothing = dict.fromkeys(tables.BY_QUOTA.names, 0.0)
    assert found.candidates == (
        Candidate("recorded", nothing | {"producer_byte_rate": 3.0}, violations=3, given_up=0),
        Candidate(
            "a.toml",
            nothing | {"producer_byte_rate": 7.0, "request_percentage": 3.0},
            violations=6,
            given_up=3,
        ),
    )
    assert found.rows == (Replayed(Entity(None, "a"), (1.0, 7.0)),)
    assert (found.rest, found.rest_count, found.left_out) == ((2.0, 3.0), 2, 0)
    assert replay(spark, lake, (date(2020, 1, 1), date(2020, 1, 2)), 1) is None


def test_the_report_shows_ingest_counts_and_reasons_of_malformed_lines(
    spark: SparkSession, lake: Lake
) -> None:
    rows: list[Values] = [
        {"batch": 0, "read": 10, "good": 10, "late": 0, "malformed": 0},
        {"batch": 1, "read": 10, "good": 7, "late": 2, "malformed": 1},
        {"batch": 2, "read": 5, "good": 4, "late": 0, "malformed": 1},
    ]
    tables.replace(frame(spark, LEDGER, rows), lake.ledger("usage"), "batch")
    lines: list[Values] = [{"line": "x", "reason": "not JSON", "batch": batch} for batch in (1, 2)]
    tables.replace(frame(spark, tables.MALFORMED, lines), lake.malformed("usage"), "batch")
    (found,) = find(spark, lake, Wanted()).ingested
    assert found == Ingested("usage", 3, 25, 21, 2, 2, ((2, 0, 1), (1, 2, 1)), (("not JSON", 2),))


def test_the_report_reads_hostile_names_from_spark_unchanged(spark: SparkSession, lake: Lake) -> None:
    """Names pass through Spark unchanged; other tests check the page."""
    write_rollup(spark, lake, [rolled(name, name, produced_bytes=1) for name in HOSTILE])
    found = find(spark, lake, Wanted(top=5))
    shown = [Entity(name, name) for name in sorted(HOSTILE)[:5]]  # equal values are ordered by name
    assert [row.entity for row in found.talkers[0].rows] == shown
    assert [entity for entity, _ in found.heats[0].rows] == shown
    assert found.heats[0].rest == {START_MS: len(HOSTILE) - 5}
