"""Ingest from files: valid, malformed and late records, checkpoints, and errors."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql import functions as fn

from tests.pipeline.usage_files import NOON_MS, clients, put, traced, usage
from weir.pipeline import tables
from weir.pipeline.files import Files
from weir.pipeline.ingest import checkpoint as ingest_checkpoint
from weir.pipeline.ingest.batch import Batches, with_lateness
from weir.pipeline.ingest.job import Pace, ingest
from weir.pipeline.ingest.ledger import LEDGER, NEWEST, newest_after
from weir.pipeline.ingest.parse import USAGE, parsed
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MINUTE_MS = 60_000


def test_ingest_writes_usage_and_trace_files_to_tables(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "us age%201"
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"), b"", b"no record", usage(NOON_MS, "b"))
    put(directory, "trace-weir-1-00000000.jsonl", msgspec.json.encode(traced(NOON_MS)), b"{}")
    put(directory, ".usage-weir-1-00000001.jsonl.part", usage(NOON_MS, "unfinished"))
    put(directory, "_usage-weir-1-00000001.jsonl", usage(NOON_MS, "hidden"))
    put(directory, "other.jsonl", usage(NOON_MS, "other"))

    said: list[str] = []
    first = ingest(spark, lake, Directory(str(directory)), say=said.append)
    assert first.read == {"usage lines": 4, "trace lines": 2}
    assert first.wrote == {
        "usage records": 2,
        "malformed usage": 2,
        "trace records": 1,
        "malformed trace": 1,
    }
    assert first.where["malformed usage"] == lake.malformed("usage")
    assert len(said) == 2
    assert clients(spark, lake.usage) == Counter("ab")
    assert spark.read.parquet(lake.trace).count() == 1
    (empty, bad) = spark.read.parquet(lake.malformed("usage")).orderBy("line").collect()
    assert (empty.line, empty.reason) == ("", "empty")
    assert (bad.line, bad.reason) == ("no record", "not one JSON object")
    assert bad.source.endswith("usage-weir-1-00000000.jsonl")

    assert ingest(spark, lake, Directory(str(directory))).notes == ("nothing new",)

    (directory / ".usage-weir-1-00000001.jsonl.part").rename(directory / "usage-weir-1-00000001.jsonl")
    put(directory, "usage-weir-1-00000002.jsonl", usage(NOON_MS - 10 * MINUTE_MS - 1, "late"))
    third = ingest(spark, lake, Directory(str(directory)), kinds=("usage",))
    assert third.read == {"usage lines": 2}
    assert third.wrote == {"usage records": 1, "late usage": 1}
    assert clients(spark, lake.usage) == Counter(["a", "b", "unfinished"])
    assert clients(spark, lake.late("usage")) == Counter(["late"])
    assert spark.read.schema(tables.USAGE).parquet(lake.late("usage")).columns == tables.USAGE.names


def test_continuous_ingest_finishes_its_batch_when_stopped(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory, stop = Lake(str(tmp_path / "lake")), tmp_path / "usage", threading.Event()
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"))

    def say(line: str) -> None:
        if line.startswith("usage batch 0"):
            put(directory, "usage-weir-1-00000001.jsonl", usage(NOON_MS, "b"))
        else:
            stop.set()

    outcome = ingest(spark, lake, Directory(str(directory)), kinds=("usage",), pace=Pace(0.1, stop), say=say)
    assert outcome.read == {"usage lines": 2}
    assert clients(spark, lake.usage) == Counter("ab")


def test_ingest_of_an_empty_directory_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    (tmp_path / "usage").mkdir()
    outcome = ingest(spark, lake, Directory(str(tmp_path / "usage")))
    assert outcome.read == {"usage lines": 0, "trace lines": 0}
    assert outcome.notes == ("nothing new",)
    assert tables.read(spark, lake.usage, tables.USAGE).count() == 0


def test_ingest_of_a_missing_directory_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"/usage: no such directory; does Weir write usage there yet\?"):
        ingest(spark, Lake(str(tmp_path)), Directory(str(tmp_path / "usage")))


def lines(spark: SparkSession, *values: bytes, channel: str = "", taken_ms: int = 2 * NOON_MS) -> DataFrame:
    rows = [(value.decode(), "here", channel, taken_ms) for value in values]
    return spark.createDataFrame(rows, "value string, source string, channel string, taken_ms bigint")


def test_a_repeated_ingest_batch_replaces_all_of_the_first_attempt(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    now = parsed(lines(spark, usage(NOON_MS, "now")), USAGE)
    then = parsed(lines(spark, usage(NOON_MS - 5 * MINUTE_MS, "then"), b"bad"), USAGE)
    before = Batches(lake, USAGE, 10 * MINUTE_MS, print)
    before.take(now, 0)
    before.take(then, 1)
    assert clients(spark, lake.usage) == Counter(["now", "then"])
    (tmp_path / "usage" / ".spark-staging-left").mkdir()

    Batches(lake, USAGE, MINUTE_MS, print).take(then, 1)
    assert clients(spark, lake.usage) == Counter(["now"])
    assert clients(spark, lake.late("usage")) == Counter(["then"])
    assert spark.read.parquet(lake.malformed("usage")).count() == 1
    assert not (tmp_path / "usage" / ".spark-staging-left").exists()
    (row,) = tables.read(spark, lake.ledger("usage"), LEDGER).where("batch = 1").collect()
    assert (row.read, row.good, row.late, row.malformed, row.last_ms) == (2, 0, 1, 1, None)
    assert [tuple(each) for each in row.newest] == [("/weir-1", NOON_MS)]


def test_a_record_is_late_only_against_its_stream(spark: SparkSession) -> None:
    before = spark.createDataFrame([("0/weir-1", NOON_MS), ("1/weir-1", NOON_MS + 9 * MINUTE_MS)], NEWEST)
    old = usage(NOON_MS - MINUTE_MS, "of weir-1")
    other = usage(NOON_MS - 99 * MINUTE_MS, "of another", "weir-2")
    rows = lines(spark, old, other, channel="0").union(lines(spark, old, channel="1"))
    found = with_lateness(parsed(rows, USAGE), before, 2 * MINUTE_MS).select("stream", "late").collect()
    assert {row.stream: row.late for row in found} == {
        "0/weir-1": False,
        "0/weir-2": False,
        "1/weir-1": True,
    }


def test_a_record_from_the_future_counts_as_no_newer_than_its_batch(spark: SparkSession) -> None:
    before = spark.createDataFrame([("/weir-1", NOON_MS - 5), ("/weir-3", 7)], NEWEST)
    rows = parsed(
        lines(spark, usage(NOON_MS + 60 * MINUTE_MS), usage(5, "old", "weir-2"), taken_ms=NOON_MS), USAGE
    )
    (row,) = newest_after(before, with_lateness(rows, before, 0)).collect()
    assert sorted(tuple(each) for each in row.newest) == [("/weir-1", NOON_MS), ("/weir-3", 7)]


def a_log(lake: Lake, log: str, last: int) -> None:
    directory = Path(lake.checkpoint("usage"), log)
    directory.mkdir(parents=True)
    (directory / str(last)).write_text(json.dumps("v1"))


def a_batch(lake: Lake, number: int) -> None:
    Path(lake.ledger("usage"), f"batch={number}").mkdir(parents=True)


@pytest.mark.parametrize(
    ("planned", "done", "entered", "message"),
    [
        (None, None, [0], "checkpoint/usage is lost, but .*ledger/usage has batches"),
        (3, 3, [3, 4], "checkpoint/usage is older than the tables: it ends at batch 3"),
        (4, 3, [4, 5], "checkpoint/usage is older than the tables: it ends at batch 4"),
        (4, 3, [], "ledger/usage lacks batch 3, which .*checkpoint/usage has: restore"),
    ],
)
def test_ingest_refuses_a_checkpoint_that_does_not_fit_the_tables(
    planned: int | None,
    done: int | None,
    entered: list[int],
    message: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    lake = Lake(str(tmp_path))
    Files(spark).note(f"{lake.checkpoint('usage')}/weir-source", "files here")
    if planned is not None and done is not None:
        a_log(lake, "offsets", planned)
        a_log(lake, "commits", done)
    for number in entered:
        a_batch(lake, number)
    with pytest.raises(PipelineError, match=message):
        ingest_checkpoint.check(Files(spark), lake, "usage", "files here")


@pytest.mark.parametrize(
    ("planned", "done", "entered"),
    [(None, None, []), (0, None, []), (0, None, [0]), (4, 3, [3]), (4, 3, [3, 4]), (4, 4, [4])],
    ids=["new", "killed in the first", "after its row", "killed in a batch", "after its row, later", "idle"],
)
def test_ingest_continues_from_a_checkpoint_that_fits_the_tables(
    planned: int | None, done: int | None, entered: list[int], spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path))
    Files(spark).note(f"{lake.checkpoint('usage')}/weir-source", "files here")
    if planned is not None:
        a_log(lake, "offsets", planned)
    if done is not None:
        a_log(lake, "commits", done)
    for number in entered:
        a_batch(lake, number)
    ingest_checkpoint.check(Files(spark), lake, "usage", "files here")


def test_ingest_refuses_a_second_source_for_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    ingest_checkpoint.check(Files(spark), lake, "usage", "files here")
    ingest_checkpoint.check(Files(spark), lake, "usage", "files here")
    with pytest.raises(PipelineError, match="takes usage from files here, not from topic there: give each"):
        ingest_checkpoint.check(Files(spark), lake, "usage", "topic there")


def test_two_ingests_into_one_lake_at_once_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    files, path = Files(spark), str(tmp_path / "checkpoint" / ".weir-lock")
    with files.locked(path), pytest.raises(PipelineError, match="another ingest is running"):
        files.locked(path).__enter__()
    with files.locked(path):
        pass


def test_counts_of_an_empty_ingest_batch_are_zeros(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    taker = Batches(lake, USAGE, 0, print)
    taker.take(parsed(lines(spark, b"x").where(fn.lit(False)), USAGE), 0)
    assert (taker.counts.read, taker.counts.good) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


@pytest.mark.parametrize("name", ["us{ag}e", "usage[1]", "usage*", "usage?", "us\\age"])
def test_ingest_refuses_a_directory_that_spark_would_read_as_a_pattern(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(PipelineError, match=r"takes such a name for a pattern|no such directory"):
        Directory(str(tmp_path / name)).check(spark)
