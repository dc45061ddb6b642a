"""Where the records lie in a produce request: a walk over its partitions, as many as one cares to look at.

It goes as far as there are bytes: of a request that is cut it tells what its beginning says. It refuses
nothing; where the bytes make no sense, it stops.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from protocol.field_offsets import layout
from protocol.field_scanner import Bytes, Source, compiled, length_width
from protocol.messages import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Slot


Produced: TypeAlias = tuple[int, int, int, int, list[tuple[int, int]]]
"""What was found in a produce request: (topics that it claims to have; how many of these were looked at;
partitions that those claim to have; where the first topic's partitions begin, behind their count, 0 if that
is not at hand; (start, stop) of the records of each partition that was looked at). The last stop may lie
beyond what is at hand, and beyond the frame.
"""
FindRecords: TypeAlias = "Callable[[Bytes, int, int, int], Produced]"
"""(data, body, end, limit) -> what the body that begins at `body`, and of which `data[:end]` is at hand, has
in its first `limit` topics and partitions. Raises nothing on any bytes.
"""

_TAGS_MAX: Final = 8
_STOP: Final = "return topics, begun, partitions, first, spans"


class _RecordsSource(Source):
    """The source of a walk that notes where records are."""

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type == "records" and not slot.is_array:
            self.flush()
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
        """Few at most: every one takes a step."""
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
    """Return how to find the records in requests of this version (cached). Raises ValueError for one that the
    schemas do not know.
    """
    found = layout(ProduceRequest, version)
    source = _RecordsSource(found, when_short=_STOP)
    with source.block("def locate(data, body, end, limit):"):
        source.line("position, topics, begun, partitions, first, spans = body, 0, 0, 0, 0, []")
        source.fields(found.fields, found.name)
        source.flush()
        source.line(_STOP)
    return cast(FindRecords, compiled(source, found, "locate"))
