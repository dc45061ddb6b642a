"""Remove the records from a fetch response while it streams by.

A consumer over its quota gets no records, but everything else of the broker's response: session id, errors,
high watermarks, aborted transactions, tagged fields. The records are never in memory.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from protocol.errors import ProtocolError, TooLargeError
from protocol.messages import FetchResponse
from protocol.scanning.field_offsets import layout
from protocol.scanning.field_scanner import Bytes, Chunks, Source, Stream, compiled, length_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.schema import Layout, Slot


class RecordsRemover:
    """Copies the body of one fetch response chunk by chunk, with every `records` field emptied.

    A null `records` field stays null. Every other byte is copied, even bytes behind the last field.
    """

    __slots__ = ("_chunks", "_keep", "_kept", "_version", "complete")

    def __init__(self, version: int, *, kept_bytes_max: int) -> None:
        """`kept_bytes_max` limits the body without its records.

        Raises ValueError for a version that the schemas lack. The first remover of a version takes about 10
        ms to make, because its source is compiled.
        """
        self.complete = False
        """True if the last field, and the tagged fields behind it, have been fed."""
        self._version = version
        self._kept = bytearray()
        self._keep = _new_keep(self._kept, kept_bytes_max, version)
        self._chunks = Chunks(_remover(version)(self._keep, self._kept))

    def feed(self, data: Bytes, start: int, stop: int) -> None:
        """Copy from the body's next bytes, `data[start:stop]`.

        Raises TooLargeError if more bytes would be kept than allowed, other ProtocolErrors for malformed
        bytes; after that, every call raises ProtocolError.
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
        """Return the body without records. Raises ProtocolError unless `complete`."""
        if not self.complete:
            reason = "the message ends too early, or is malformed"
            raise ProtocolError(reason, api=FetchResponse.__name__, version=self._version)
        return bytes(self._kept)


_Keep: TypeAlias = "Callable[[Bytes, int, int, int], int]"
"""(data, body, start, stop) -> the new offset up to which all bytes are kept.

Keeps the bytes from the offset `start` in the body to the position `stop` in `data`. Does nothing if `start`
is behind `stop`. Raises TooLargeError.
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
"""Size of the longest varint."""


class _RemovingSource(Source):
    """A scan that keeps everything except records.

    In the source, `start` is the offset of the first byte not kept yet. While the scan skips records or their
    length, `start` is behind them.
    """

    def message(self, layout: Layout) -> None:
        """Scan all fields of a message, including tagged ones."""
        self._struct(layout, layout.name)

    def next_chunk(self) -> None:
        self.line("start = keep(data, body, start, end)")
        super().next_chunk()

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type == "records" and not slot.is_array:
            self.flush()
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
