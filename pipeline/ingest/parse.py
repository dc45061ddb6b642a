"""Parse lines into records, and validate them, with msgspec and the proxy's own types of records.

Spark passes batches of Arrow to Python processes. Decoding a block of lines at once, and checking bounds by
column, is several times as fast as doing so by line. A block with an invalid line is parsed again by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from weir.pipeline.ingest.lines import Unread, blocks
from weir.usage.records import VERSION, TraceRecord, UsageRecord
from weir.usage.schema import schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KNOWN_VERSIONS: Final = (VERSION,)
OLDEST_MS: Final = 1_420_070_400_000
"""Lowest valid time (ms) of a record: the beginning of 2015, before Weir existed."""
DAY_MS: Final = 24 * 3600 * 1000
AHEAD_MS_MAX: Final = DAY_MS
"""Time (ms) by which a record may be ahead of the clock of Spark's batch; a record further ahead is
rejected.
"""
COUNT_MAX: Final = 10**13
"""Maximum of any number in a valid record, so low that sums of records fit into 64 bits."""
INTERVAL_MS_MAX: Final = DAY_MS
TEXT_MAX: Final = 1_000
"""Maximum length (characters) of a name, longer than any that Weir writes. A name of megabytes could exhaust
the memory of a job.
"""
LINE_MAX: Final = 10_000
"""Number of bytes of a rejected line that the table `rejected` keeps."""
REJECTED_MAX: Final = 1_000_000
"""Maximum number of rejected lines of one file; after these, the rest of the file is not read."""

SOURCE: Final = StructType().add("source", "string").add("content", "binary").add("taken_ms", "long")
"""Columns of a source: the name of a file or offset, its content, and the time of the batch."""
_ABOUT: Final = (
    StructType().add("line", "string").add("reason", "string").add("source", "string").add("taken_ms", "long")
).fields
_Record = UsageRecord | TraceRecord


class _Versioned(msgspec.Struct):
    version: int


@dataclass(frozen=True)
class Kind:
    """A kind of records, usage or trace: the class that defines its fields, and the fields that no two
    records have in common.
    """

    name: str
    record: type[_Record]
    key: tuple[str, ...]

    @cached_property
    def columns(self) -> StructType:
        """Spark schema of the records of this kind."""
        return StructType.fromJson(schema(self.record))

    @cached_property
    def parsed(self) -> StructType:
        """Spark schema of parsed lines: the columns of a record, and those of a rejected line. Either are
        null.
        """
        return StructType([*self.columns.fields, *_ABOUT])


USAGE: Final = Kind("usage", UsageRecord, ("instance", "broker", "time_ms", "user", "client_id", "api"))
TRACE: Final = Kind("trace", TraceRecord, ("instance", "connection", "correlation_id", "time_ms", "api_key"))
KINDS: Final = {kind.name: kind for kind in (USAGE, TRACE)}


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the checks of records."""

    keep_ms: int | None = None
    """Age (ms) beyond which records are rejected; None to take records of any age."""
    skip_lost: bool = False
    """True to ignore files that were deleted before they were read."""
    now_ms: int | None = None
    """Unix time (ms) that replaces the time of the batch; None if the source has that time."""


RULES: Final = Rules()


def parsed(sources: DataFrame, kind: Kind, rules: Rules = RULES, *, files: bool) -> DataFrame:
    """Parse sources (`SOURCE`) into one row per line, in the columns of `Kind.parsed`. With `files`, the
    content of a source is a file, whose name says how it is compressed; else it is one line.
    """
    parse = partial(rows_of_files if files else rows_of_lines, kind.name, rules)
    return sources.select(*SOURCE.names).mapInArrow(parse, kind.parsed)


def day() -> Column:
    """Return the Spark column with the day (UTC) of a record."""
    return fn.to_date(fn.timestamp_millis("time_ms"))


def rows_of_files(name: str, rules: Rules, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files (`SOURCE`); `name` is that of a kind."""
    for batch in batches:
        for source, content, taken_ms in zip(*batch.columns, strict=True):
            parser, path = _Parser(name, rules, taken_ms.as_py()), source.as_py()
            found = content.as_buffer()  # None for local files; empty for empty files
            try:
                yield from _of_file(parser, path, path.removeprefix("file:") if found is None else found)
            except FileNotFoundError:
                if not rules.skip_lost:
                    raise


def _of_file(parser: _Parser, name: str, content: pa.Buffer | str) -> Iterator[pa.RecordBatch]:
    for block in blocks(name, content):
        yield from parser.parse(block, name)
        if parser.rejected > REJECTED_MAX:
            reason = f"the rest of the file is not read: over {REJECTED_MAX} lines are rejected"
            yield from parser.parse(Unread(b"", reason), name)
            return


def rows_of_lines(name: str, rules: Rules, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of lines (`SOURCE`); `name` is that of a kind."""
    for batch in batches:
        if not batch.num_rows:
            continue
        sources, contents, taken = (column.to_pylist() for column in batch.columns)
        parser = _Parser(name, rules, taken[0])
        yield from parser.parse_lines([line or b"" for line in contents], sources, taken)


class _Parser:
    """Parses the lines of one kind."""

    def __init__(self, kind: str, rules: Rules, taken_ms: int) -> None:
        self._kind = KINDS[kind]
        self._decoder = msgspec.json.Decoder(self._kind.record)
        self._schema = to_arrow_schema(self._kind.parsed)
        self._taken_ms = taken_ms
        now_ms = rules.now_ms or taken_ms
        self._oldest_ms = OLDEST_MS if rules.keep_ms is None else max(OLDEST_MS, now_ms - rules.keep_ms)
        self._bounds = _bounds(self._kind, self._oldest_ms, now_ms + AHEAD_MS_MAX)
        self.rejected = 0

    def parse(self, block: bytes | Unread, source: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block of whole lines, or of a part of the file that is not read."""
        if isinstance(block, Unread):
            yield self._refused([(block.start, block.reason, source, self._taken_ms)])
            return
        try:
            records = self._decoder.decode_lines(block)
            if len(records) == block.count(b"\n") + (not block.endswith(b"\n")):
                yield self._taken(records)
                return
        except (ValueError, RecursionError, OverflowError, pa.ArrowInvalid):
            pass
        lines = [line for line in block.split(b"\n") if line.strip()]
        yield from self.parse_lines(lines, [source] * len(lines), [self._taken_ms] * len(lines))

    def parse_lines(
        self, lines: Sequence[bytes], sources: Sequence[str], taken: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of lines, one by one checked."""
        good, bad = list[_Record](), list[tuple[bytes, str, str, int]]()
        for line, source, taken_ms in zip(lines, sources, taken, strict=True):
            judged = self._judged(line)
            if isinstance(judged, str):
                bad.append((line, judged, source, taken_ms))
            else:
                good.append(judged)
        if good:
            yield self._taken(good)
        if bad:
            yield self._refused(bad)

    def _judged(self, line: bytes) -> _Record | str:
        """Return the record of a line, or the reason why the line is rejected."""
        if not line.strip():
            return "empty"
        try:
            record = self._decoder.decode(line)
        except UnicodeDecodeError:
            return "not UTF-8"
        except RecursionError:
            return "JSON is nested too deeply"
        except msgspec.MsgspecError as error:
            return _version_of(line) or str(error)
        if record.version not in KNOWN_VERSIONS:
            return f"version {record.version} is not known"
        return next(self._violations(record), record)

    def _violations(self, record: _Record) -> Iterator[str]:
        if record.time_ms < self._oldest_ms > OLDEST_MS:
            yield f"time_ms {record.time_ms} is older than the retention"
        for name, (least, most) in self._bounds.items():
            value: Any = record
            for part in name.split("."):
                value = getattr(value, part)
            if isinstance(value, str):
                if len(value) > most:
                    yield f"{name} has {len(value)} characters, more than {most}"
            elif not least <= value <= most:
                yield f"{name} {value} is not within {least} and {most}"

    def _taken(self, records: Sequence[_Record]) -> pa.RecordBatch:
        """Return the rows of valid records. Raises ValueError or OverflowError if one is invalid."""
        count = len(records)
        arrays = [
            _array([*map(attrgetter(field.name), records)], field.type, self._bounds, field.name)
            for field in list(self._schema)[: -len(_ABOUT)]
        ]
        nothing = [pa.nulls(count, field.type) for field in list(self._schema)[-len(_ABOUT) :]]
        return pa.record_batch([*arrays, *nothing], schema=self._schema)

    def _refused(self, lines: Sequence[tuple[bytes, str, str, int]]) -> pa.RecordBatch:
        self.rejected += len(lines)
        nothing = [pa.nulls(len(lines), field.type) for field in list(self._schema)[: -len(_ABOUT)]]
        texts, reasons, sources, taken = zip(*lines, strict=True)
        shown = [text[:LINE_MAX].decode("utf-8", "backslashreplace") for text in texts]
        about = [pa.array(shown), pa.array(reasons), pa.array(sources), pa.array(taken, pa.int64())]
        return pa.record_batch([*nothing, *about], schema=self._schema)


def _version_of(line: bytes) -> str | None:
    """Return the reason for which a line of an unknown version is rejected, None for other lines."""
    try:
        version = msgspec.json.decode(line, type=_Versioned).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if version in KNOWN_VERSIONS else f"version {version} is not known"


_Bounds = dict[str, tuple[int, int]]


def _bounds(kind: Kind, oldest_ms: int, newest_ms: int) -> _Bounds:
    """Return the least and greatest valid value by dotted name of a field; for texts, of their length."""
    bounds = dict.fromkeys(_leaves(kind.columns), (0, COUNT_MAX))
    texts = [field.name for field in kind.columns.fields if isinstance(field.dataType, StringType)]
    special = {
        "version": (min(KNOWN_VERSIONS), max(KNOWN_VERSIONS)),
        "time_ms": (oldest_ms, newest_ms),
        "interval_ms": (1, INTERVAL_MS_MAX),
        "broker": (-1, 2**31 - 1),  # -1: unknown broker
        "correlation_id": (-COUNT_MAX, COUNT_MAX),
        **dict.fromkeys(texts, (0, TEXT_MAX)),
    }
    return bounds | {name: bound for name, bound in special.items() if name in bounds}


def _leaves(columns: StructType, prefix: str = "") -> Iterator[str]:
    for field in columns.fields:
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def _array(values: list[Any], kind: pa.DataType, bounds: _Bounds, name: str) -> pa.Array:
    """Return an Arrow array of the values. Raises ValueError or OverflowError if a value is out of bounds."""
    if isinstance(kind, pa.StructType):
        if all(value is values[0] for value in values):  # almost always the default
            return pa.repeat(pa.scalar(msgspec.structs.asdict(values[0]), kind), len(values))
        parts = [
            _array([*map(attrgetter(field.name), values)], field.type, bounds, f"{name}.{field.name}")
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    array = pa.array(values, kind)
    least, most = bounds[name]
    found = pc.min_max(pc.utf8_length(array) if pa.types.is_string(kind) else array).as_py()
    if found["min"] is not None and not (least <= found["min"] and found["max"] <= most):
        raise ValueError(f"{name} is out of bounds")
    return array
