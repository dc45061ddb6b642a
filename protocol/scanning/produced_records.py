"""Finds the records in a produce request: scans its partitions, up to a limit.

The request may have arrived in part; the scan ends at the last byte that has arrived. The scan also ends at
malformed bytes, and never raises.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.messages import ProduceRequest
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Bytes, Source, compiled, length_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.schema import Slot


Produced: TypeAlias = tuple[int, int, int, int, list[tuple[int, int]]]
"""Result of scanning a produce request: (number of topics in the request; number of topics scanned; number of
partitions in the scanned topics; position of the first topic's partitions, behind their count, 0 if it has
not arrived; (start, stop) of the records of each scanned partition). The last `stop` may be behind the bytes
that have arrived, and, in a malformed request, behind the frame.
"""
FindRecords: TypeAlias = "Callable[[Bytes, int, int, int], Produced]"
"""Type of a function that finds the records in a produce request: called with (data, body, end, limit), it
returns their positions as `Produced`. The request's body begins at `data[body]` and has arrived up to `end`.
The function stops after `limit` topics or `limit` partitions, and never raises.
"""

_TAGS_MAX: Final = 8
_STOP: Final = "return topics, begun, partitions, first, spans"


class _RecordsSource(Source):
    """Generates a scanning function that collects the positions of records."""

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type == "records" and not slot.is_array:
            self._note_records(slot, path)
        else:
            super()._variable(slot, path)

    def _array(self, slot: Slot, path: str) -> None:
        assert slot.struct is not None
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        outer = any(inner.is_array for inner in slot.struct.fields)
        if outer:
            self.line("topics = n")
        else:
            self.line("partitions += n")
            with self.block("if begun == 1:"):
                self.line("first = position")
        with self.block("for _ in range(n):"):
            if outer:
                with self.block("if begun >= limit:"):
                    self.line(_STOP)
                self.line("begun += 1")
            self._struct(slot.struct, path)

    def _note_records(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        self.line("stop = position + n if n > 0 else position")
        self.line("spans.append((position, stop))")
        self.line("position = stop")
        with self.block("if len(spans) >= limit:"):
            self.line(_STOP)

    def _tags(self, path: str) -> None:
        """Add source that scans at most 8 (`_TAGS_MAX`) tagged fields, because each takes time. A request
        with more tagged fields ends the scan.
        """
        self._varint(path)
        with self.block("if n:"):
            self._refuse(f"n > {_TAGS_MAX}", "")
            with self.block("for _ in range(n):"):
                self._varint(path)
                self._varint(path)
                self.line("position += n")

    def _refuse(self, condition: str, problem: str) -> None:  # noqa: ARG002 - as in Source
        with self.block(condition if condition == "else:" else f"if {condition}:"):
            self.line(_STOP)


@cache
def records_in(version: int) -> FindRecords:
    """Return the function that finds records in produce requests of this version (cached). Raises ValueError
    if the schemas lack the version.
    """
    found = layout(ProduceRequest, version)
    source = _RecordsSource(found, when_short=_STOP)
    with source.block("def locate(data, body, end, limit):"):
        source.line("position, topics, begun, partitions, first, spans = body, 0, 0, 0, 0, []")
        source.fields(found.fields, found.name)
        source.flush()
        source.line(_STOP)
    return cast(FindRecords, compiled(source, found, "locate"))
