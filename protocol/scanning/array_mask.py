"""Hides the last array of a message that arrives in parts.

Share fetch responses have addresses of brokers in an untagged array (NodeEndpoints), their last field. A
response of 50 MB is never in memory as a whole, and its length was sent before the array arrives. So
`ArrayMask` overwrites the array with an empty one, and all bytes behind with one tagged field that no client
knows. The scan finds the beginning of the array; the end of the message is known from the frame's length.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, cast

from weir.protocol.scanning.endpoint_mask import UNKNOWN_TAG
from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import Chunks, Stream, compiled, least_size
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource

if TYPE_CHECKING:
    from collections.abc import Callable

_EMPTY: Final = 1
"""Count of a compact array without elements; 0 is null."""
_SIZE_BYTES: Final = 5
"""Number of bytes of the varint that gives the size of the unknown tagged field. The varint always has the
maximum length, because some total lengths are impossible with varints of minimum length. A field of 127 bytes
and its varint take 128 bytes, a field of 128 bytes takes 130. Readers accept longer varints than needed
(Kafka's ByteUtils.readUnsignedVarint).
"""
_HEAD_BYTES: Final = 3 + _SIZE_BYTES


class ArrayMask(PausingScanner):
    """Changes a response in place, chunk by chunk, so that its last array is empty. If `feed` raises
    ProtocolError, the caller must not send the chunk, because it may contain elements of the array.
    """

    __slots__ = ()

    def __init__(self, message: MessageLike, version: int, field: str, body_bytes: int) -> None:
        """Begin at the start of a body of `body_bytes`. `field` is the message's last untagged field, a
        compact array. Raises ValueError for another field, and for a version that the schemas lack.
        """
        self.complete = False
        self._left = [0]
        self._chunks = Chunks(_masker(layout(message, version).name, version, field)(self._left, body_bytes))


@cache
def _masker(message: str, version: int, field: str) -> Callable[[list[int], int], Stream]:
    found = layout(message, version)
    slot = found.fields[-1]
    if slot.name != field or not (slot.is_array and slot.compact and slot.struct):
        raise ValueError(f"{found.name} v{version} does not end with a compact array {field}")
    least_bytes = 2 + sum(map(least_size, slot.struct.fields)) + slot.struct.flexible
    """Minimum number of bytes from the array to the end of the body: an array with one element, and the count
    0 of tagged fields.
    """
    source = PausingSource(found, when_short=None)
    with source.block("def stream(allowed, body_bytes):"):
        source.begin()
        source.fields(found.fields[:-1], found.name)
        source.flush()
        source.need()
        with source.block(f"if data[position] > {_EMPTY}:"):
            source.line("n = body_bytes - (position - body)")
            with source.block(f"if n < {max(least_bytes, _HEAD_BYTES)}:"):
                source.line("fail(position - body, 'the message ends within its last array')")
            source.line("cover = covered(n)")
            source.overwrite()
        source.end()
    return cast("Callable[[list[int], int], Stream]", compiled(source, found, "stream", covered=_covered))


def _covered(length: int) -> bytes:
    """Return the first bytes that replace an array: an empty array and the beginning of one unknown tagged
    field, which take `length` bytes together.
    """
    size = length - _HEAD_BYTES
    varint = [size >> shift & 127 | 128 for shift in (0, 7, 14, 21)]
    return bytes((_EMPTY, 1, UNKNOWN_TAG, *varint, size >> 28))
