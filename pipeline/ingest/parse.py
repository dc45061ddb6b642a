"""Lines into records, each judged: a good record, or malformed and why. Built-in functions only.

`from_json` alone takes too much: the first of two objects on a line, a number where a string belongs, bytes
that are no UTF-8. So

- a line is parsed as the field of an object that Weir ends itself: only where there is one JSON value and
  nothing after it is the end found;
- strings are parsed as variants, which know what they were in JSON.

What is known of a record's type (what it needs, what is filled in) is derived from it (`usage.schema`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, VariantType

from usage.records import VERSION, TraceRecord, UsageRecord
from usage.schema import defaults, required, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN_VERSIONS: Final = (VERSION,)
OLDEST_MS: Final = 1_420_070_400_000
"""2015 began; Weir did not exist."""
AHEAD_MS_MAX: Final = 24 * 3600 * 1000
"""No clock is further ahead than a day: what says so is malformed."""
COUNT_MAX: Final = 10**13
"""More of anything in one record than there can be: sums of such records would not fit into 64 bits."""
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
TEXT_MAX: Final = 1_000
"""So many characters has the longest name: Weir shortens its own to fewer. A single name of megabytes would
take all memory of whoever sums up.
"""
LINE_MAX: Final = 10_000
"""So many characters of a malformed line are kept."""
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "wrong",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What there is to know of one kind of records."""

    name: str
    record: type[msgspec.Struct]

    @property
    def columns(self) -> StructType:
        """Of a record."""
        return StructType.fromJson(schema(self.record))


USAGE: Final = Kind("usage", UsageRecord)
TRACE: Final = Kind("trace", TraceRecord)
KINDS: Final = {kind.name: kind for kind in (USAGE, TRACE)}


def parsed(lines: DataFrame, kind: Kind) -> DataFrame:
    """Of the lines of a source (`sources`): the record's columns, what was left out filled in, `day`,
    `channel`, `taken_ms`, `line`, `source`, and `reason`, which is null if the record is good.
    """
    as_json = fn.concat(fn.lit('{"r":'), fn.col("value"), fn.lit(',"end":1}'))
    raw = lines.withColumn("json", fn.from_json(as_json, _shape(kind), _OPTIONS))
    fields = [_plain(field).alias(field.name) for field in kind.columns.fields]
    taken_apart = raw.select(*fields, "channel", "taken_ms", "value", "source", fn.col("json").alias("json"))
    checked = taken_apart.withColumn("reason", _reason(kind))
    is_good = fn.col("reason").isNull()
    return checked.select(
        *_filled(kind),
        fn.when(is_good, fn.to_date(fn.timestamp_millis("time_ms"))).alias("day"),  # other times may overflow
        "channel",
        "taken_ms",
        fn.when(~is_good, fn.left(fn.make_valid_utf8("value"), fn.lit(LINE_MAX))).alias("line"),
        fn.when(~is_good, fn.col("source")).alias("source"),
        "reason",
    )


def _shape(kind: Kind) -> StructType:
    """What a line is parsed as."""
    record = [
        StructField(field.name, VariantType() if isinstance(field.dataType, StringType) else field.dataType)
        for field in kind.columns.fields
    ]
    end, wrong = StructField("end", LongType()), StructField("wrong", StringType())
    return StructType([StructField("r", StructType(record)), end, wrong])


def _plain(field: StructField) -> Column:
    """A field as it was parsed; a string only if it was one in JSON."""
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
    """Why a line is malformed, null if it is not; the first that holds."""
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
    """Names of all numbers that have no bounds of their own, and the least that each may be."""
    found = []
    for field in columns.fields:
        name = f"{prefix}{field.name}"
        if isinstance(field.dataType, StructType):
            found += _counts(field.dataType, f"{name}.")
        elif isinstance(field.dataType, LongType | DoubleType) and name not in ("time_ms", "interval_ms"):
            found.append((name, -1 if name == "broker" else 0))  # -1: not known yet
    return found


def _says(*parts: str | Column) -> Column:
    return fn.concat(*(fn.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))
