"""Finds the partitions of a fetch response that arrives in parts, with the sizes of their records.

The response is never in memory as a whole. Of each partition the scan decodes the index, the error, the high
watermark and the length of the records, and it keeps only the current partition.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource
from weir.protocol.scanning.topic_names import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weir.protocol.schema import Layout, Slot

Note: TypeAlias = "Callable[[bytes, int, int, int, int], None]"
"""Function (topic, partition, error_code, high_watermark, records_bytes). `topic`: name in UTF-8 (versions 0
to 12), or the 16 bytes of the topic id (since 13, KIP-516).
"""

_Begin: TypeAlias = "Callable[[Note, list[int], list[int]], Stream]"
"""Generator function (note, head, allowed) that scans a body. It appends the response's error code and
session id to `head`; `PausingSource` describes `allowed`.
"""


class FetchedPartitions(PausingScanner):
    """Scans one fetch response's body chunk by chunk and reports its partitions.

    `complete` becomes True with the last byte of the last field, including tagged fields.
    """

    __slots__ = ("_head",)

    def __init__(self, version: int, note: Note) -> None:
        """Begin at the start of a body. `note` is called once for each partition, in the order of the
        response, as soon as the length of the partition's records has been read. The records may not have
        arrived yet, and may never arrive. Null records have 0 bytes.

        Raises ValueError for a version that the schemas lack. The first scan of a version takes some
        milliseconds, because its scanning function is generated and compiled.
        """
        begin = _scanner(version)
        self.complete = False
        self._head: list[int] = []
        """Error code and session id of the response; empty until both have arrived."""
        self._left = [0]
        self._chunks = Chunks(begin(note, self._head, self._left))

    @property
    def error_code(self) -> int | None:
        """Error code of the response as a whole (since version 7; 0 in older versions). None until this and
        the session id have arrived.
        """
        return self._head[0] if self._head else None

    @property
    def session_id(self) -> int | None:
        """Id of the fetch session (since version 7, KIP-227; 0 in older versions, and without a session).
        None until the id has arrived.
        """
        return self._head[1] if self._head else None


_FORMATS: Final = {
    "topic_id": ("name", "16s"),
    "partition_index": ("partition", "i"),
    "error_code": ("error_code", "h"),
    "session_id": ("session_id", "i"),
    "high_watermark": ("high_watermark", "q"),
}
"""Field of fixed size that is decoded → (variable in the generated source, format of `struct`)."""


class _ReportingSource(PausingSource):
    """Generates a scanning function that calls `note` for each partition. The generated function keeps only
    the current topic and the current partition.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, when_short=None)
        self.readers: dict[str, Callable[..., object]] = {}
        """Functions that the generated source calls, by name. Each decodes adjacent fields."""

    def message(self, layout: Layout) -> None:
        """Add the scan of all fields of the response, including tagged fields."""
        if not any(slot.name == "session_id" for slot in layout.fields):
            self.line("head += (0, 0)")
        self._struct(layout, layout.name)

    def fields(self, slots: Iterable[Slot], path: str) -> None:
        """Add source that scans these fields, and decodes those in `_FORMATS`."""
        for is_decoded, adjacent in groupby(slots, lambda slot: slot.name in _FORMATS):
            if is_decoded:
                self.flush()
                self._decode([_FORMATS[slot.name] for slot in adjacent])
            else:
                super().fields(adjacent, path)

    def _decode(self, adjacent: list[tuple[str, str]]) -> None:
        """Add source that decodes adjacent fields of fixed size, given as (variable, format)."""
        names = [name for name, _format in adjacent]
        packed = Struct(">" + "".join(format_ for _name, format_ in adjacent))
        read = "read_" + "_".join(names)
        self.readers[read] = packed.unpack_from
        with self.block(f"if position + {packed.size} <= end:"):
            self.line(f"{', '.join(names)}, = {read}(data, position)")
            self.line(f"position += {packed.size}")
        with self.block("else:"):
            self.collect(packed.size)
            self.line(f"{', '.join(names)}, = {read}(part)")
        if "session_id" in names:
            self.line("head += (error_code, session_id)")

    def _variable(self, slot: Slot, path: str) -> None:
        if is_topic_name(slot):
            self.keep_name(slot, path)
        elif slot.type == "records" and not slot.is_array:
            self._report(slot, path)
        else:
            super()._variable(slot, path)

    def _report(self, slot: Slot, path: str) -> None:
        """Add source that reads the length of a partition's records, calls `note` and skips the records."""
        self.records_length(slot, path)
        with self.block("if n < 0:"):
            self.line("n = 0")
        self.line("position += n")
        self.line("note(name, partition, error_code, high_watermark, n)")


@cache
def _scanner(version: int) -> _Begin:
    found = layout(FetchResponse, version)
    source = _ReportingSource(found)
    with source.block("def stream(note, head, allowed):"):
        source.begin()
        source.message(found)
        source.end()
    return cast(_Begin, compiled(source, found, "stream", **source.readers))
