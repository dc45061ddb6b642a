"""Removes the records from a fetch response that arrives in parts.

A consumer over its quota gets the broker's response without records: with session id, errors, high
watermarks, aborted transactions and tagged fields. The records are never stored.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.errors import ProtocolError, TooLargeError
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Bytes, Chunks, Source, Stream, compiled, length_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.schema import Layout, Slot


class RecordsRemover:
    """Copies the body of one fetch response chunk by chunk, with every `records` field emptied.

    A null `records` field stays null. All other bytes are copied, also bytes behind the last field.
    """

    __slots__ = ("_chunks", "_keep", "_kept", "_version", "complete")

    def __init__(self, version: int, *, kept_bytes_max: int) -> None:
        """Begin without bytes. `kept_bytes_max`: maximum size (bytes) of the body without its records.

        Raises ValueError for a version that the schemas lack. The first remover of a version takes about 10
        ms, because its scanning function is generated and compiled.
        """
        self.complete = False
        """True if the body has been fed up to its last field, including tagged fields."""
        self._version = version
        self._kept = bytearray()
        self._keep = _new_keep(self._kept, kept_bytes_max, version)
        self._chunks = Chunks(_remover(version)(self._keep, self._kept))

    def feed(self, data: Bytes, start: int, stop: int) -> None:
        """Scan the next bytes of the body, `data[start:stop]`, and copy all of them but records. Feed each
        byte of the body once, in order.

        Raises TooLargeError if the copy would exceed `kept_bytes_max`, another ProtocolError for malformed
        bytes. After an error, every further call of `feed` or `body` raises ProtocolError.
        """
        if not self.complete:
            self.complete = self._chunks.feed(data, start, stop) is not None
            return
        try:
            self._keep(data, 0, start, stop)
        except TooLargeError:
            self.complete = False  # the scan has ended, so every further call fails
            raise

    def body(self) -> bytes:
        """Return the body without records. Raises ProtocolError if `complete` is False."""
        if not self.complete:
            reason = "the message ends too early, or is malformed"
            raise ProtocolError(reason, api=FetchResponse.__name__, version=self._version)
        return bytes(self._kept)


_Keep: TypeAlias = "Callable[[Bytes, int, int, int], int]"
"""Function `keep(data, body, start, stop)` that copies bytes of a message's body. It copies from the offset
`start` in the body up to the position `stop` in `data`; the body starts at the position `body` of `data`.
Returns the offset of `stop` in the body. If `start` is behind `stop`, copies nothing and returns `start`.
Raises TooLargeError if the copy would exceed its maximum size.
"""


def _new_keep(kept: bytearray, kept_bytes_max: int, version: int) -> _Keep:
    def keep(data: Bytes, body: int, start: int, stop: int) -> int:
        first = body + start
        if first > stop:
            return start
        if len(kept) + stop - first > kept_bytes_max:
            reason = f"more than {kept_bytes_max} bytes are left without the records"
            raise TooLargeError(reason, api=FetchResponse.__name__, version=version)
        kept.extend(data[first:stop])
        return stop - body

    return keep


_LENGTH_BYTES_MAX: Final = 5
"""Maximum size (bytes) of a varint."""


class _RemovingSource(Source):
    """Generates a scanning function that copies all bytes except records.

    In the generated source, `start` is the offset of the first byte that is not copied yet. While the scan
    skips records or their length, `start` is behind the skipped bytes.
    """

    def message(self, layout: Layout) -> None:
        """Add the scan of all fields of a message, including tagged fields."""
        self._struct(layout, layout.name)

    def next_chunk(self) -> None:
        self.line("start = keep(data, body, start, end)")
        super().next_chunk()

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type == "records" and not slot.is_array:
            self._empty_records(slot, path)
        else:
            super()._variable(slot, path)

    def _empty_records(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self.need()
        self.line(f"start = keep(data, body, start, position) + {_LENGTH_BYTES_MAX}")
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        null, empty = (b"\0", b"\1") if width == 1 else (b"\xff" * width, b"\0" * width)
        self.line(f"kept += {null!r} if n < 0 else {empty!r}")
        with self.block("if n > 0:"):
            self.line("position += n")
        self.line("start = position - body")


@cache
def _remover(version: int) -> Callable[[_Keep, bytearray], Stream]:
    found = layout(FetchResponse, version)
    source = _RemovingSource(found, when_short=None)
    with source.block("def stream(keep, kept):"):
        source.line("data, body, position, start, end = b'', 0, 0, 0, 0")
        source.message(found)
        with source.block("while position > end:"):
            source.next_chunk()
        source.line("keep(data, body, start, end)")
        source.line("return position - body")
    return cast("Callable[[_Keep, bytearray], Stream]", compiled(source, found, "stream"))
