"""Removes the records from a fetch response that arrives in parts.

A consumer over its quota gets the broker's response without records: with session id, errors, high
watermarks, aborted transactions and tagged fields. The records are never stored.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.errors import ProtocolError, TooLargeError
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Bytes, Chunks, Stream, compiled, length_width
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.schema import Slot


class RecordsRemover(PausingScanner):
    """Copies the body of one fetch response chunk by chunk, with every `records` field emptied.

    A null `records` field stays null. All other bytes are copied, also bytes behind the last field.
    `complete` becomes True with the end of the body's last field, including tagged fields.
    """

    __slots__ = ("_keep", "_version", "kept")

    def __init__(self, version: int, *, kept_bytes_max: int) -> None:
        """Begin without bytes. `kept_bytes_max`: maximum size (bytes) of the body without its records.

        Raises ValueError for a version that the schemas lack. The first remover of a version takes about 10
        ms, because its scanning function is generated and compiled.
        """
        self.complete = False
        self._version = version
        self.kept = bytearray()
        """The bytes copied so far."""
        self._keep = _new_keep(self.kept, kept_bytes_max, version)
        self._left = [0]
        self._chunks = Chunks(_remover(version)(self._keep, self.kept, self._left))

    def feed(self, data: Bytes, start: int, stop: int, elements_max: int = sys.maxsize) -> int:
        """Scan the next bytes of the body, `data[start:stop]`, as `PausingScanner.feed` does, and copy all of
        them but records.

        Raises TooLargeError if the copy would exceed `kept_bytes_max`, another ProtocolError for malformed
        bytes. After an error, every further call of `feed` or `body` raises ProtocolError.
        """
        if self.complete:
            try:
                self._keep(data, 0, start, stop)
            except TooLargeError:
                self.complete = False  # the scan has ended, so every further call fails
                raise
        return super().feed(data, start, stop, elements_max)

    def body(self) -> bytes:
        """Return the body without records. Raises ProtocolError if `complete` is False."""
        if not self.complete:
            reason = "the message ends too early, or is malformed"
            raise ProtocolError(reason, api=FetchResponse.__name__, version=self._version)
        return bytes(self.kept)


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


class _RemovingSource(PausingSource):
    """Generates a scanning function that copies all bytes except records.

    In the generated source, `start` is the offset of the first byte that is not copied yet. While the scan
    skips records or their length, `start` is behind the skipped bytes.
    """

    def next_chunk(self) -> None:
        self.line("start = keep(data, body, start, min(position, end))")
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
def _remover(version: int) -> Callable[[_Keep, bytearray, list[int]], Stream]:
    found = layout(FetchResponse, version)
    source = _RemovingSource(found, when_short=None)
    with source.block("def stream(keep, kept, allowed):"):
        source.line("data, start = b'', 0")
        source.begin()
        source.message(found)
        source.await_skipped()
        source.line("keep(data, body, start, end)")
        source.end()
    return cast("Callable[[_Keep, bytearray, list[int]], Stream]", compiled(source, found, "stream"))
