"""Write generated records as JSON lines, as Weir writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from bench.pipeline.generator import INTERVAL_MS, QUOTAS, Columns, Plan, batches, client_ids, users
from weir.usage.groups import GROUPS
from weir.usage.records import VERSION

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
        """Return a batch as a table with all columns of a usage record."""
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
        return named.select(_TAKEN)


def write_json(plan: Plan, directory: Path, changes: Sequence[pl.Expr] = ()) -> None:
    """Write files like Weir's usage files, one per batch, with these changes of the columns."""
    names = Names(plan)
    directory.mkdir(parents=True, exist_ok=True)
    for number, columns in enumerate(batches(plan)):
        file = directory / f"usage-{number:06d}.jsonl"
        rows = lines(names.frame(columns).with_columns(changes))
        rows.to_frame().write_csv(file, include_header=False, quote_style="never")


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
