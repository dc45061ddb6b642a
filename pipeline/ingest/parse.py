"""Parse lines into records, and validate them, with Spark's built-in functions only.

Spark's `from_json` alone accepts too much: of two objects on a line it returns the first, and it accepts a
number for a string, and invalid UTF-8. Therefore

- a line is parsed as a field of an object whose last field is Weir's: Spark finds this last field only if the
  line is exactly one JSON value;
- strings are parsed as variants, which keep their JSON type.

The record's type (`usage.schema`) determines required fields and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, VariantType

from weir.usage.records import VERSION, TraceRecord, UsageRecord
from weir.usage.schema import defaults, required, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN_VERSIONS: Final = (VERSION,)
OLDEST_MS: Final = 1_420_070_400_000
"""Lowest valid time (ms) of a record: the beginning of 2015, before Weir existed."""
AHEAD_MS_MAX: Final = 24 * 3600 * 1000
"""Time (ms) by which a record may be ahead of the clock of Spark's batch; a record further ahead is
malformed.
"""
COUNT_MAX: Final = 10**13
"""Maximum of any number in a valid record, so low that sums of records fit into 64 bits."""
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
TEXT_MAX: Final = 1_000
"""Maximum length (characters) of a name, longer than any that Weir writes. A name of megabytes could exhaust
the memory of a job.
"""
LINE_MAX: Final = 10_000
"""Number of characters of a malformed line that the table `malformed` keeps."""
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "wrong",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of records, usage or trace, and the class that defines its fields."""

    name: str
    record: type[msgspec.Struct]

    @property
    def columns(self) -> StructType:
        """Spark schema of the records of this kind."""
        return StructType.fromJson(schema(self.record))


USAGE: Final = Kind("usage", UsageRecord)
TRACE: Final = Kind("trace", TraceRecord)
KINDS: Final = {kind.name: kind for kind in (USAGE, TRACE)}


def parsed(lines: DataFrame, kind: Kind) -> DataFrame:
    """Parse the lines of a source (`sources`) into one row per line.

    The columns are those of the record, with defaults; its `day`; `channel` (the part of the source) and
    `taken_ms` (the time of the batch) from the source; and for a malformed line also `line`, `source` and
    `reason`, which are null for a good record.
    """
    as_json = fn.concat(fn.lit('{"r":'), fn.col("value"), fn.lit(',"end":1}'))
    raw = lines.withColumn("json", fn.from_json(as_json, _shape(kind), _OPTIONS))
    fields = [_plain(field).alias(field.name) for field in kind.columns.fields]
    taken_apart = raw.select(*fields, "channel", "taken_ms", "value", "source", fn.col("json").alias("json"))
    checked = taken_apart.withColumn("reason", _reason(kind))
    is_good = fn.col("reason").isNull()
    return checked.select(
        *_filled(kind),
        # An invalid time could overflow.
        fn.when(is_good, fn.to_date(fn.timestamp_millis("time_ms"))).alias("day"),
        "channel",
        "taken_ms",
        fn.when(~is_good, fn.left(fn.make_valid_utf8("value"), fn.lit(LINE_MAX))).alias("line"),
        fn.when(~is_good, fn.col("source")).alias("source"),
        "reason",
    )


def _shape(kind: Kind) -> StructType:
    """Return the Spark schema for parsing `{"r": LINE, "end": 1}`, the JSON object in which each line is
    embedded.
    """
    record = [
        StructField(field.name, VariantType() if isinstance(field.dataType, StringType) else field.dataType)
        for field in kind.columns.fields
    ]
    end, wrong = StructField("end", LongType()), StructField("wrong", StringType())
    return StructType([StructField("r", StructType(record)), end, wrong])


def _plain(field: StructField) -> Column:
    """Return the column with a field's value. For a string field, the value is null if the JSON value was not
    a string.
    """
    value = fn.col(f"json.r.{field.name}")
    if not isinstance(field.dataType, StringType):
        return value
    return fn.when(fn.schema_of_variant(value) == "STRING", fn.try_variant_get(value, "$", "string"))


def _filled(kind: Kind) -> list[Column]:
    left_out = defaults(kind.record)
    return [_fill(field, left_out.get(field.name)).alias(field.name) for field in kind.columns.fields]


def _fill(field: StructField, default: object) -> Column:
    if isinstance(default, dict):
        return fn.struct(
            *(
                fn.coalesce(fn.col(f"{field.name}.{name}"), fn.lit(value)).alias(name)
                for name, value in default.items()
            )
        )
    return fn.col(field.name) if default is None else fn.coalesce(fn.col(field.name), fn.lit(default))


def _reason(kind: Kind) -> Column:
    """Return the column with the first reason why a line is malformed; null for a good record."""
    version = fn.col("version")
    needed = required(kind.record)
    nothing = fn.coalesce(*(fn.col(name).cast("string") for name in needed)).isNull()
    reasons = [
        (fn.coalesce(fn.trim("value"), fn.lit("")) == "", fn.lit("empty")),
        (~fn.is_valid_utf8("value"), fn.lit("not UTF-8")),
        (fn.col("json.end").isNull() | fn.col("json.r").isNull(), fn.lit("not one JSON object")),
        (fn.col("json.wrong").isNotNull() & nothing, fn.lit("not one JSON object")),
        (version.isNotNull() & ~version.isin(*KNOWN_VERSIONS), _says("version ", version, " is not known")),
        *((fn.col(name).isNull(), fn.lit(f"{name} is missing, or of the wrong type")) for name in needed),
        (fn.col("json.wrong").isNotNull(), fn.lit("a field is of the wrong type")),
        *_out_of_bounds(kind),
    ]
    return fn.coalesce(*(fn.when(holds, why) for holds, why in reasons))


def _out_of_bounds(kind: Kind) -> list[tuple[Column, Column]]:
    time_ms = fn.col("time_ms")
    bounds = [
        (time_ms < OLDEST_MS, _says("time_ms ", time_ms, " is before 2015")),
        (
            time_ms > fn.col("taken_ms") + AHEAD_MS_MAX,
            _says("time_ms ", time_ms, " is more than a day ahead of when it was taken"),
        ),
    ]
    if "interval_ms" in kind.columns.names:
        interval_ms = fn.col("interval_ms")
        outside = ~interval_ms.between(1, INTERVAL_MS_MAX)
        bounds.append(
            (outside, _says("interval_ms ", interval_ms, f" is not within 1 and {INTERVAL_MS_MAX}"))
        )
    for field in kind.columns.fields:
        if isinstance(field.dataType, StringType):
            length = fn.length(field.name)
            too_long = _says(f"{field.name} has ", length, f" characters, more than {TEXT_MAX}")
            bounds.append((length > TEXT_MAX, too_long))
    for name, least in _counts(kind.columns):
        value = fn.col(name)
        outside = ~value.between(least, COUNT_MAX)  # NaN and infinity are outside
        bounds.append((outside, _says(f"{name} ", value, f" is not within {least} and {COUNT_MAX}")))
    return bounds


def _counts(columns: StructType, prefix: str = "") -> list[tuple[str, int]]:
    """Return the dotted name of each numeric column of a record, and the smallest permitted value: -1 for
    `broker`, else 0. `time_ms` and `interval_ms` are left out: they have checks of their own. `prefix` is the
    name of the enclosing struct with a dot; empty for the record itself.
    """
    found = []
    for field in columns.fields:
        name = f"{prefix}{field.name}"
        if isinstance(field.dataType, StructType):
            found += _counts(field.dataType, f"{name}.")
        elif isinstance(field.dataType, LongType | DoubleType) and name not in ("time_ms", "interval_ms"):
            found.append((name, -1 if name == "broker" else 0))  # -1: unknown broker
    return found


def _says(*parts: str | Column) -> Column:
    return fn.concat(*(fn.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))
