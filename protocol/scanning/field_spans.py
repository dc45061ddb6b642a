"""Finds the bytes of chosen strings, bytes and records in a message that arrives in parts.

The scan reports the position and the size of each chosen field before the bytes of the field arrive. So a
caller can replace them in place, chunk by chunk, while the message's length stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Source, Stream, compiled, length_width

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot

Note: TypeAlias = Callable[[int, int, int], None]
"""Function (index of the field among the chosen fields, offset of its first byte in the body, size in bytes)
that the scan calls for each chosen field that is neither null nor empty, in the order of the bytes.
"""


def field_spans(message: MessageLike, version: int, fields: tuple[str, ...], note: Note) -> Chunks:
    """Return a scan of one body of this version, which reports `fields` to `note`. A field is named by its
    path, such as "topics.configs.value"; fields that the version lacks are ignored.

    `Chunks.feed` returns the offset behind the message once all of it is scanned, and raises ProtocolError
    for malformed bytes. Raises ValueError for a message or version that the schemas lack.
    """
    return Chunks(_scan(layout(message, version).name, version, fields)(note))


class _SpanSource(Source):
    """Generates a scanning function that reports fields."""

    def __init__(self, layout: Layout, fields: tuple[str, ...]) -> None:
        super().__init__(layout, when_short=None)
        self._chosen = {f"{layout.name}.{field}": index for index, field in enumerate(fields)}

    def message(self, layout: Layout) -> None:
        """Add the scan of all fields of a message, including tagged fields."""
        self._struct(layout, layout.name)

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.is_array or slot.struct is not None or path not in self._chosen:
            super()._variable(slot, path)
            return
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        with self.block("if n > 0:"):
            self.line(f"note({self._chosen[path]}, position - body, n)")
            self.line("position += n")


@cache
def _scan(name: str, version: int, fields: tuple[str, ...]) -> Callable[[Note], Stream]:
    found = layout(name, version)
    source = _SpanSource(found, fields)
    with source.block("def stream(note):"):
        source.line("body = position = end = 0")
        source.message(found)
        with source.block("while position > end:"):
            source.next_chunk()
        source.line("return position - body")
    return cast("Callable[[Note], Stream]", compiled(source, found, "stream"))
