"""Ingest from files: valid and rejected lines, duplicates, files that are not read, and errors."""

from __future__ import annotations

import gzip
import os
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from tests.pipeline.usage_files import NOON_MS, clients, put, traced, usage
from weir.pipeline import tables
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake, read
from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FAR_FUTURE_S = 32_000_000_000
"""Unix time (s) in the year 2984."""


def usage_of(spark: SparkSession, lake: Lake, directory: Path, **options: object) -> list[int]:
    """Ingest the usage files of a directory; return the numbers of lines read and of records written."""
    outcome = ingest(spark, lake, Directory(str(directory)), kinds=("usage",), **options)  # type: ignore[arg-type]  # options by name
    return [outcome.read["usage lines"], outcome.wrote["usage records"]]


def test_ingest_writes_usage_and_trace_files_to_tables(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "us age%201"
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"), b"", b"no record", usage(NOON_MS, "b"))
    put(directory, "trace-weir-1-00000000.jsonl", msgspec.json.encode(traced(NOON_MS)), b"{}")
    put(directory, ".usage-weir-1-00000001.jsonl.part", usage(NOON_MS, "unfinished"))
    (directory / "usage-weir-2-00000000.jsonl.gz").write_bytes(gzip.compress(usage(NOON_MS, "c")))
    (directory / "usage-weir-3-00000000.jsonl.zst").write_bytes(
        pa.compress(usage(NOON_MS, "d"), "zstd", asbytes=True)
    )

    said: list[str] = []
    first = ingest(spark, lake, Directory(str(directory)), cluster="east", say=said.append)
    assert first.read == {"usage lines": 5, "trace lines": 2}
    assert first.wrote == {"usage records": 4, "rejected usage": 1, "trace records": 1, "rejected trace": 1}
    assert len(said) == 2
    assert clients(spark, lake.usage) == Counter("abcd")
    (row,) = read(spark, lake.usage, tables.USAGE).where("client_id = 'a'").collect()
    assert (row.cluster, str(row.day), row.requests, row.bytes_in) == ("east", "2023-11-15", 1, 0)
    assert read(spark, lake.trace, tables.TRACE).count() == 1
    bad = {row.kind: row for row in read(spark, lake.rejected, tables.REJECTED).collect()}
    assert (bad["usage"].line, bad["usage"].cluster) == ("no record", "east")
    assert "JSON is malformed" in bad["usage"].reason
    assert bad["usage"].source.endswith("/us age%201/usage-weir-1-00000000.jsonl")
    assert "version" in bad["trace"].reason

    assert ingest(spark, lake, Directory(str(directory)), cluster="east").notes == ("nothing new",)


def test_a_usage_file_restored_under_another_name_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "usage"
    lines = [usage(NOON_MS, "a"), usage(NOON_MS, "b"), usage(NOON_MS + 1000, "a")]
    put(directory, "usage-weir-1-00000000.jsonl", *lines)
    put(directory, "usage-weir-1-00000000-copy.jsonl", *lines)
    assert usage_of(spark, lake, directory) == [6, 3]
    put(directory, "usage-restored.jsonl", *lines, usage(NOON_MS, "new"))
    outcome = ingest(spark, lake, Directory(str(directory)), kinds=("usage",))
    assert outcome.wrote == {"usage records": 1}
    assert "duplicates: 3 usage records were in the tables already" in outcome.notes
    assert clients(spark, lake.usage) == Counter({"a": 2, "b": 1, "new": 1})
    put(directory, "usage-weir-1-00000000-of-another-cluster.jsonl", *lines)
    assert usage_of(spark, lake, directory, cluster="west") == [13, 4]


def test_a_usage_file_dated_in_the_future_hides_no_other_file(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "usage"
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "future"))
    os.utime(directory / "usage-weir-1-00000000.jsonl", (FAR_FUTURE_S, FAR_FUTURE_S))
    assert usage_of(spark, lake, directory) == [1, 1]
    put(directory, "usage-weir-1-00000001.jsonl", usage(NOON_MS, "now"))
    assert usage_of(spark, lake, directory) == [1, 1]
    assert clients(spark, lake.usage) == Counter(["future", "now"])


def test_ingest_names_the_files_that_it_does_not_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.pipeline.ingest.sources.FILE_BYTES_MAX", 1000)
    lake, directory = Lake(str(tmp_path / "lake")), tmp_path / "usage"
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"))
    put(directory, "usage-weir-1-00000001.jsonl", *[usage(NOON_MS, f"large {n}") for n in range(50)])
    for number in range(5):
        put(directory, f"notes-{number}.txt", b"hello")
    put(directory / "old", "usage-weir-1-00000002.jsonl", usage(NOON_MS, "below"))
    put(directory, "usage-weir-1-00000003.jsonl.tmp", usage(NOON_MS, "being written"))
    put(directory, "usage-weir-1-00000004.jsonl.tmp", usage(NOON_MS, "left behind"))
    os.utime(directory / "usage-weir-1-00000004.jsonl.tmp", (1_700_000_000, 1_700_000_000))
    outcome = ingest(spark, lake, Directory(str(directory)), kinds=("usage",))
    assert outcome.read == {"usage lines": 1}
    assert outcome.notes == (
        "not read: 1 file in subdirectories: old/usage-weir-1-00000002.jsonl",
        "not read: 1 file larger than 1000 bytes: usage-weir-1-00000001.jsonl",
        "not read: 1 file unfinished for over an hour: usage-weir-1-00000004.jsonl.tmp",
        "not read: 5 files with other names: notes-0.txt, notes-1.txt, notes-2.txt, …",
    )


def test_continuous_ingest_finishes_its_batch_when_stopped(spark: SparkSession, tmp_path: Path) -> None:
    lake, directory, stop = Lake(str(tmp_path / "lake")), tmp_path / "usage", threading.Event()
    put(directory, "usage-weir-1-00000000.jsonl", usage(NOON_MS, "a"))

    def say(line: str) -> None:
        if line.startswith("usage batch 0"):
            put(directory, "usage-weir-1-00000001.jsonl", usage(NOON_MS, "b"))
        else:
            stop.set()

    assert usage_of(spark, lake, directory, every_s=0.1, stop=stop, say=say) == [2, 2]
    assert clients(spark, lake.usage) == Counter("ab")


def test_ingest_of_an_empty_directory_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    (tmp_path / "usage").mkdir()
    outcome = ingest(spark, lake, Directory(str(tmp_path / "usage")))
    assert outcome.read == {"usage lines": 0, "trace lines": 0}
    assert outcome.notes == ("nothing new",)
    assert read(spark, lake.usage, tables.USAGE).count() == 0


def test_ingest_of_a_missing_directory_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"/usage: no such directory; does Weir write usage there yet\?"):
        ingest(spark, Lake(str(tmp_path)), Directory(str(tmp_path / "usage")))


@pytest.mark.parametrize("name", ["us{ag}e", "usage[1]", "usage*", "usage?", "us\\age"])
def test_ingest_refuses_a_directory_that_spark_would_read_as_a_pattern(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(PipelineError, match=r"takes such a name for a pattern"):
        list(Directory(str(tmp_path / name)).unread(spark))
