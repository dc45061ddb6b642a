"""All jobs in one Spark, their input, and their results in tables and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tests.pipeline.killed import COLUMNS, content
from tests.pipeline.usage_files import NOON_MS, put, usage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOUR_MS: Final = 3_600_000
Results = tuple[object, ...]


def write_records(directory: Path) -> Path:
    """Write usage records of 30 hours in two files, and a line that is no record. Return the directory."""
    use = {"api": "produce", "requests": 50, "interval_ms": 10_000, "charged_bytes": 20_000_000}
    lines = [
        msgspec.json.encode(msgspec.json.decode(usage(NOON_MS + hour * HOUR_MS, name)) | use)
        for hour in range(30)
        for name in "abc"
    ]
    put(directory, "usage-weir-1-00000000.jsonl", *lines[:50], b"bad")
    put(directory, "usage-weir-1-00000001.jsonl", *lines[50:])
    return directory


def all_jobs(root: Path, files: Path | str, lake: str = "") -> tuple[str, ...]:
    """Return the arguments of `weir pipeline` for all jobs. The lake is `lake` below `root` by default."""
    jobs = (
        f"ingest --lake {lake or f'{root}/lake'} --files {files} --once then rollup "
        f"then recommend --output {root}/new.toml then replay {root}/new.toml "
        f"then report --output {root}/report.html then maintain"
    )
    return tuple(jobs.split())


def results(spark: SparkSession, root: Path) -> Results:
    report, quotas = ((root / name).read_text().splitlines() for name in ("report.html", "new.toml"))
    tables = [content(spark, f"{root}/lake/{name}", columns) for name, columns in COLUMNS.items()]
    assert all(tables)
    return quotas[1:], [line for line in report if "Weir report, " not in line], *tables
