"""Parse lines into records, and validate them, with msgspec and the proxy's own types of records.

Spark passes batches of Arrow to Python processes. Decoding a block of lines at once is several times as fast
as doing so by line. A block with an invalid line is parsed again by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from weir.pipeline import tables
from weir.pipeline.ingest.lines import Unread, blocks
from weir.usage.records import VERSION, TraceRecord, UsageRecord

KNOWN_VERSIONS: Final = (VERSION,)
OLDEST_MS: Final = 1_420_070_400_000
"""Lowest valid time (ms) of a record: the beginning of 2015, before Weir existed."""
DAY_MS: Final = 24 * 3600 * 1000
AHEAD_MS_MAX: Final = DAY_MS
"""Maximum time (ms) by which a valid record may be ahead of the clock of Spark's batch."""
COUNT_MAX: Final = 10**13
"""Maximum of any number in a valid record, so low that sums of records fit into 64 bits."""
TEXT_MAX: Final = 1_000
"""Maximum length (characters) of a name, so that no name exhausts a job's memory; Weir's are shorter."""
LINE_MAX: Final = 10_000
"""Number of bytes of a rejected line that the table `rejected` keeps."""
REJECTED_MAX: Final = 1_000_000
"""Maximum number of rejected lines of one file; after these, the rest of the file is not read."""

_COUNT: Final = Meta(ge=0, le=COUNT_MAX)
_BY_TYPE: Final = {int: _COUNT, float: _COUNT, str: Meta(max_length=TEXT_MAX)}
_BY_NAME: Final = {
    "version": Meta(ge=min(KNOWN_VERSIONS), le=max(KNOWN_VERSIONS)),
    "time_ms": Meta(),  # depends on the time of the batch: `_Parser._untimely`
    "interval_ms": Meta(ge=1, le=DAY_MS),
    "broker": Meta(ge=-1, le=2**31 - 1),  # -1: unknown broker
    "correlation_id": Meta(ge=-COUNT_MAX, le=COUNT_MAX),
}
"""Bounds of valid values, where they are not those of all fields of a type."""

SOURCE: Final = StructType().add("source", "string").add("content", "binary").add("taken_ms", "long")
"""Columns of a source: the name of a file or offset, its content, and the time of the batch."""
_ABOUT: Final = (
    StructType().add("line", "string").add("reason", "string").add("source", "string").add("taken_ms", "long")
).fields


class _Versioned(msgspec.Struct):
    version: int


class IngestKind(NamedTuple):
    """A kind of records, usage or trace."""

    name: str
    record: type[msgspec.Struct]
    columns: StructType
    key: tuple[str, ...]
    """Names of the fields whose values no two records have in common."""

    @property
    def parsed(self) -> StructType:
        """Spark schema of parsed lines: the columns of a record, then of a rejected line. Either are null."""
        return StructType([*self.columns.fields, *_ABOUT])


_USAGE_KEY: Final = ("instance", "broker", "time_ms", "user", "client_id", "api")
_TRACE_KEY: Final = ("instance", "connection", "correlation_id", "time_ms", "api_key")
USAGE: Final = IngestKind("usage", UsageRecord, tables.USAGE_RECORD, _USAGE_KEY)
TRACE: Final = IngestKind("trace", TraceRecord, tables.TRACE_RECORD, _TRACE_KEY)
KINDS: Final = {kind.name: kind for kind in (USAGE, TRACE)}


class Rules(NamedTuple):
    """Settings of the checks of records."""

    keep_ms: int | None = None
    """Age (ms) beyond which records are rejected; None to take records of any age."""
    now_ms: int | None = None
    """Unix time (ms) that replaces the time of the batch; None if the source has that time."""


RULES: Final = Rules()


def parsed(
    sources: DataFrame, kind: IngestKind, rules: Rules = RULES, *, files: bool, skip_lost: bool = False
) -> DataFrame:
    """Parse sources (`SOURCE`) into one row per line, in the columns of `IngestKind.parsed`. With `files`,
    the content of a source is a file, whose name says how it is compressed; else it is one line. With
    `skip_lost`, files that were deleted before they were read are ignored.
    """
    of_files, of_lines = partial(rows_of_files, skip_lost=skip_lost), rows_of_lines
    parse = partial(of_files if files else of_lines, kind.name, rules)
    return sources.select(*SOURCE.names).mapInArrow(parse, kind.parsed)


def rows_of_files(
    name: str, rules: Rules, batches: Iterable[pa.RecordBatch], *, skip_lost: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files (`SOURCE`); `name` is that of a kind."""
    for batch in batches:
        for source, content, taken_ms in zip(*batch.columns, strict=True):
            parser, path = _Parser(name, rules, taken_ms.as_py()), source.as_py()
            found = content.as_buffer()  # None for local files; empty for empty files
            try:
                yield from parser.parse_file(path, path.removeprefix("file:") if found is None else found)
            except FileNotFoundError:
                if not skip_lost:
                    raise


def rows_of_lines(name: str, rules: Rules, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of lines (`SOURCE`); `name` is that of a kind."""
    for batch in batches:
        if batch.num_rows:
            sources, contents, taken = (column.to_pylist() for column in batch.columns)
            parser = _Parser(name, rules, taken[0])
            yield from parser.parse_lines([line or b"" for line in contents], sources, taken)


class _Parser:
    """Parses the lines of one kind."""

    def __init__(self, kind: str, rules: Rules, taken_ms: int) -> None:
        self._decoder = msgspec.json.Decoder(_bounded(KINDS[kind].record))
        self._schema = to_arrow_schema(KINDS[kind].parsed)
        self._fields = list(self._schema)[: -len(_ABOUT)]
        self._taken_ms = taken_ms
        now_ms = rules.now_ms or taken_ms
        self._oldest_ms = OLDEST_MS if rules.keep_ms is None else max(OLDEST_MS, now_ms - rules.keep_ms)
        self._newest_ms = now_ms + AHEAD_MS_MAX

    def parse_file(self, name: str, content: pa.Buffer | str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, whose `content` is as in `lines.blocks`."""
        rejected = 0
        for block in blocks(name, content):
            for rows in self._parse_block(block, name):
                rejected += rows.num_rows - rows.column("line").null_count
                yield rows
            if rejected > REJECTED_MAX:
                reason = f"the rest of the file is not read: over {REJECTED_MAX} lines are rejected"
                yield from self._parse_block(Unread(b"", reason), name)
                return

    def _parse_block(self, block: bytes | Unread, source: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block of whole lines, or of a part of the file that is not read."""
        if isinstance(block, Unread):
            yield self._refused([(block.start, block.reason, source, self._taken_ms)])
            return
        with suppress(ValueError, RecursionError):
            records = self._decoder.decode_lines(block)
            is_whole = len(records) == block.count(b"\n") + (not block.endswith(b"\n"))
            if is_whole and not any(self._untimely(record.time_ms) for record in records):
                yield self._taken(records)
                return
        lines = [line for line in block.split(b"\n") if line.strip()]
        yield from self.parse_lines(lines, [source] * len(lines), [self._taken_ms] * len(lines))

    def parse_lines(
        self, lines: Sequence[bytes], sources: Sequence[str], taken: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of lines, one by one checked."""
        good, bad = list[Any](), list[tuple[bytes, str, str, int]]()
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

    def _judged(self, line: bytes) -> Any:
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
        return self._untimely(record.time_ms) or record

    def _untimely(self, time_ms: int) -> str | None:
        """Return the reason for which a record of this time is rejected; None if its time is valid."""
        if time_ms < self._oldest_ms > OLDEST_MS:
            return f"time_ms {_dated(time_ms)} is older than the retention"
        if self._oldest_ms <= time_ms <= self._newest_ms:
            return None
        return (
            f"time_ms {_dated(time_ms)} is not within {_dated(self._oldest_ms)} and {_dated(self._newest_ms)}"
        )

    def _taken(self, records: Sequence[object]) -> pa.RecordBatch:
        arrays = [_array([*map(attrgetter(field.name), records)], field.type) for field in self._fields]
        nothing = [pa.nulls(len(records), field.type) for field in list(self._schema)[len(arrays) :]]
        return pa.record_batch([*arrays, *nothing], schema=self._schema)

    def _refused(self, lines: Sequence[tuple[bytes, str, str, int]]) -> pa.RecordBatch:
        nothing = [pa.nulls(len(lines), field.type) for field in self._fields]
        texts, reasons, sources, taken = zip(*lines, strict=True)
        shown = [text[:LINE_MAX].decode("utf-8", "backslashreplace") for text in texts]
        about = [pa.array(shown), pa.array(reasons), pa.array(sources), pa.array(taken, pa.int64())]
        return pa.record_batch([*nothing, *about], schema=self._schema)


def _bounded(record: type[msgspec.Struct]) -> type[Any]:
    """Return a type like `record` for which msgspec also checks the bounds of values."""
    fields = list[Any]()
    for field in msgspec.structs.fields(record):
        kind: Any = field.type
        if issubclass(kind, msgspec.Struct):
            kind = _bounded(kind)
        else:
            kind = Annotated[kind, _BY_NAME.get(field.name) or _BY_TYPE[kind]]
        fields.append((field.name, kind) if field.required else (field.name, kind, field.default))
    return msgspec.defstruct(record.__name__, fields, frozen=True, kw_only=True)


def _version_of(line: bytes) -> str | None:
    """Return the reason for which a line of an unknown version is rejected, None for other lines."""
    try:
        version = msgspec.json.decode(line, type=_Versioned).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if version in KNOWN_VERSIONS else f"version {version} is not known"


def _dated(time_ms: int) -> str:
    """Return a Unix time (ms) with its date, if it has one."""
    try:
        date = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return f"{time_ms} ({date})"


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not isinstance(kind, pa.StructType):
        return pa.array(values, kind)
    if all(value is values[0] for value in values):  # almost always the default
        return pa.repeat(pa.scalar(msgspec.structs.asdict(values[0]), kind), len(values))
    parts = [_array([*map(attrgetter(field.name), values)], field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
