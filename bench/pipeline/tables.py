"""Write generated records: the Delta table that ingest writes, and JSON lines as Weir writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from bench.pipeline.generator import INTERVAL_MS, QUOTAS, Columns, Plan, batches, client_ids, users
from weir.usage.groups import GROUPS
from weir.usage.records import VERSION, UsageRecord
from weir.usage.schema import schema

CLUSTER: Final = "default"

_LEFT_OUT: Final = (
    *("requests", "bytes_in", "bytes_out", "sessions", "charged_bytes", "request_time_us", "mutations"),
    *("old_bytes", "errors"),
)
"""Fields that JSON lines leave out if their value is 0."""
_BY_QUOTA: Final = ("throttle_ms", "violations")
_TAKEN: Final = (
    *("version", "time_ms", "interval_ms", "instance", "broker", "user", "client_id", "api", *_LEFT_OUT[:-1]),
    *(*_BY_QUOTA, "errors"),
)


class Names:
    """Replaces the numbers in generated columns by texts: users, client-ids and API groups."""

    def __init__(self, plan: Plan) -> None:
        self._users = pl.Series(users(plan))
        self._client_ids = pl.Series(client_ids(plan))
        self._groups = pl.Series([str(group) for group in GROUPS])

    def frame(self, columns: Columns) -> pl.DataFrame:
        """Return a batch as a table with all columns of a usage record, and the column `day`."""
        numbers = pl.DataFrame(columns)
        named = numbers.with_columns(
            user=self._users.gather(numbers["user"]),
            client_id=self._client_ids.gather(numbers["client_id"]),
            api=self._groups.gather(numbers["api"]),
            instance=pl.format("weir-{}", "instance"),
            version=pl.lit(VERSION, pl.Int64),
            interval_ms=pl.lit(INTERVAL_MS, pl.Int64),
            **{of: pl.struct(pl.col(f"{of}.{quota}").alias(quota) for quota in QUOTAS) for of in _BY_QUOTA},
        )
        return named.select(*_TAKEN, day=pl.from_epoch("time_ms", time_unit="ms").dt.date())


def write_delta(plan: Plan, usage: Path) -> int:
    """Write the table of usage records as one version of a Delta table, in the form that ingest writes.
    Return the number of bytes of its files.
    """
    names, added = Names(plan), list[dict[str, object]]()
    for number, columns in enumerate(batches(plan)):
        for (day,), rows in names.frame(columns).partition_by("day", as_dict=True, include_key=False).items():
            file = usage / f"cluster={CLUSTER}" / f"day={day}" / f"part-{number}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            rows.write_parquet(file, compression="snappy")
            added.append(_added(usage, file, {"cluster": CLUSTER, "day": str(day)}))
    log = usage / "_delta_log" / f"{0:020d}.json"
    log.parent.mkdir()
    log.write_bytes(b"".join(msgspec.json.encode(action) + b"\n" for action in (*_created(), *added)))
    return sum(file.stat().st_size for file in usage.rglob("*.parquet"))


def _created() -> Iterator[dict[str, object]]:
    """Yield the actions that create a table, in Delta's protocol (readers version 1, writers version 2)."""
    date_ = {"name": "day", "type": "date", "nullable": True, "metadata": {}}
    text = {"name": "cluster", "type": "string", "nullable": True, "metadata": {}}
    fields = schema(UsageRecord)["fields"]
    assert isinstance(fields, list)
    columns = json.dumps({"type": "struct", "fields": [*fields, text, date_]})
    yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    yield {
        "metaData": {
            "id": "00000000-0000-0000-0000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns,
            "partitionColumns": ["cluster", "day"],
            "configuration": {},
            "createdTime": 0,
        }
    }


def _added(table: Path, file: Path, values: dict[str, str]) -> dict[str, object]:
    """Return the action that adds a file with these values of the partition's columns."""
    found = file.stat()
    return {
        "add": {
            "path": str(file.relative_to(table)),
            "partitionValues": values,
            "size": found.st_size,
            "modificationTime": found.st_mtime_ns // 1_000_000,
            "dataChange": True,
        }
    }


def write_json(plan: Plan, directory: Path) -> int:
    """Write files like Weir's usage files, one per batch. Return the number of bytes written."""
    names, size = Names(plan), 0
    directory.mkdir(parents=True, exist_ok=True)
    for number, columns in enumerate(batches(plan)):
        file = directory / f"usage-{number:06d}.jsonl"
        lines(names.frame(columns)).to_frame().write_csv(file, include_header=False, quote_style="never")
        size += file.stat().st_size
    return size


def lines(rows: pl.DataFrame) -> pl.Series:
    """Return each record as JSON, as Weir writes it: without fields whose value is 0."""
    texts = (pl.format('"{}":"{}"', pl.lit(name), name) for name in ("instance", "user", "client_id", "api"))
    always = (
        pl.format('"{}":{}', pl.lit(name), name) for name in ("version", "time_ms", "interval_ms", "broker")
    )
    counts = (_unless_nothing(name, pl.col(name)) for name in _LEFT_OUT)
    by_quota = (_object(of) for of in _BY_QUOTA)
    fields = pl.concat_str(*always, *texts, *counts, *by_quota, separator=",", ignore_nulls=True)
    return rows.select(pl.concat_str(pl.lit("{"), fields, pl.lit("}"))).to_series()


def _unless_nothing(name: str, value: pl.Expr) -> pl.Expr:
    return pl.when(value != 0).then(pl.format('"{}":{}', pl.lit(name), value))


def _object(of: str) -> pl.Expr:
    values = [pl.col(of).struct.field(quota) for quota in QUOTAS]
    inner = (_unless_nothing(quota, value) for quota, value in zip(QUOTAS, values, strict=True))
    fields = pl.concat_str(*inner, separator=",", ignore_nulls=True)
    return pl.when(pl.sum_horizontal(values) != 0).then(
        pl.concat_str(pl.lit(f'"{of}":{{'), fields, pl.lit("}"))
    )
