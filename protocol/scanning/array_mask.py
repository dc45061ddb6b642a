"""Hides the last array of a message that arrives in parts.

Share fetch responses have addresses of brokers in an untagged array (NodeEndpoints), their last field. A
response of 50 MB is never in memory as a whole, and its length was sent before the array arrives. So
`ArrayMask` overwrites the array with an empty one, and all bytes behind with one tagged field that no client
knows. The scan finds the beginning of the array; the end of the message is known from the frame's length.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from weir.protocol.errors import ProtocolError
from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, least_size, streamer
from weir.protocol.scanning.stream_scanner import UNKNOWN_TAG

if TYPE_CHECKING:
    from collections.abc import Callable

_EMPTY: Final = 1
"""Count of a compact array without elements; 0 is null."""
_SIZE_BYTES: Final = 5
"""Number of bytes of the varint that gives the size of the unknown tagged field. The varint always has the
maximum length, because some total lengths are impossible with varints of minimum length: a field of 127 bytes
and its varint take 128 bytes, a field of 128 bytes takes 130. Readers accept longer varints than needed
(Kafka's ByteUtils.readUnsignedVarint).
"""
_HEAD_BYTES: Final = 3 + _SIZE_BYTES


class ArrayMask:
    """Changes a response in place, chunk by chunk, so that its last array is empty."""

    __slots__ = ("_body_bytes", "_chunks", "_cover", "_fed", "_least_bytes", "_offset")

    def __init__(self, message: MessageLike, version: int, field: str, body_bytes: int) -> None:
        """Begin at the start of a body of `body_bytes`. `field` is the message's last untagged field, a
        compact array. Raises ValueError for another field, and for a version that the schemas lack.
        """
        found = layout(message, version)
        slot = found.fields[-1]
        if slot.name != field or not (slot.is_array and slot.compact and slot.struct):
            raise ValueError(f"{found.name} v{version} does not end with a compact array {field}")
        self._chunks = Chunks(_streamer(found.name, version)())
        self._body_bytes = body_bytes
        self._least_bytes = 2 + sum(map(least_size, slot.struct.fields)) + slot.struct.flexible
        """Minimum number of bytes from the array to the end of the body: an array with one element, and the
        count 0 of tagged fields.
        """
        self._offset: int | None = None
        """Offset of the array in the body; None until the scan has found it."""
        self._fed = 0
        self._cover = b""
        """First bytes that replace the array, followed by zeros; b"" if the array stays."""

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next, need no change, and need not be fed."""
        return self._chunks.skippable_bytes if self._offset is None else 0

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`."""
        self._chunks.skip(count)
        self._fed += count

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Read the body's next bytes, `data[start:stop]`, before they are sent, and change them if needed.

        Raises ProtocolError for malformed bytes. The caller must then not send the chunk, because it may
        contain elements of the array.
        """
        body = start - self._fed
        self._fed += stop - start
        if self._offset is None:
            self._offset = self._chunks.feed(data, start, stop)
            if self._offset is None:
                return
            if data[body + self._offset] > _EMPTY:
                self._cover = self._covered(self._body_bytes - self._offset)
        if self._cover:
            array = body + self._offset
            first = max(start, array)
            cover = self._cover[first - array : stop - array]
            data[first:stop] = cover + bytes(stop - first - len(cover))

    def _covered(self, length: int) -> bytes:
        """Return the first bytes that replace an array: an empty array and the beginning of one unknown
        tagged field, which take `length` bytes together. Raises ProtocolError if no array with elements has
        this length.
        """
        if length < max(self._least_bytes, _HEAD_BYTES):
            raise ProtocolError("the message ends within its last array", offset=self._offset or 0)
        size = length - _HEAD_BYTES
        varint = [size >> shift & 127 | 128 for shift in (0, 7, 14, 21)]
        return bytes((_EMPTY, 1, UNKNOWN_TAG, *varint, size >> 28))


@cache
def _streamer(message: str, version: int) -> Callable[[], Stream]:
    described = layout(message, version)
    return streamer(described, described.fields[:-1])
