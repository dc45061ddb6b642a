"""Unpacks the records of compressed batches, up to a limit.

gzip needs only the standard library. The other codecs need PyArrow (`kafka-weir[conformance]`). Sources: RFC
1952, and the framing of snappy-java, which Kafka's SnappyFactory writes; librdkafka writes plain snappy.
"""

from __future__ import annotations

import zlib
from typing import Final

from weir.protocol.scanning.unpacked_sizes import GZIP, LZ4, SNAPPY, ZSTD

UNPACKED_MAX: Final = 64 << 20
"""Maximum number of bytes to which a batch is unpacked."""
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
"""Number of a codec in a batch's attributes → its name."""
_SNAPPY_HEAD: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEAD_BYTES: Final = 16


class CorruptError(Exception):
    """Raised for bytes that the codec cannot unpack."""


class UnopenedError(Exception):
    """Raised if the codec's library is not installed, or for more than `UNPACKED_MAX` bytes."""


def unpack(codec: int, packed: bytes) -> bytes:
    """Return the unpacked bytes. Raises CorruptError for corrupt bytes and for an unknown codec,
    UnopenedError for bytes that this module cannot judge.
    """
    if codec not in NAMES:
        raise CorruptError(f"no codec has the number {codec}")
    if codec == GZIP:
        return _gzip(packed)
    try:
        import pyarrow as pa
    except ImportError:
        raise UnopenedError(f"{NAMES[codec]} needs PyArrow") from None
    try:
        if codec == SNAPPY:
            return _snappy(packed, pa.Codec("snappy"))
        stream = pa.CompressedInputStream(pa.BufferReader(packed), NAMES[codec])
        return _within_limit(stream.read(UNPACKED_MAX + 1))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptError(str(error).splitlines()[0]) from None


def _within_limit(unpacked: bytes) -> bytes:
    _check_limit(len(unpacked))
    return unpacked


def _check_limit(size: int) -> None:
    if size > UNPACKED_MAX:
        raise UnopenedError(f"unpacks to more than {UNPACKED_MAX} bytes")


def _gzip(packed: bytes) -> bytes:
    """Unpack all members of a gzip stream."""
    out, left = bytearray(), packed
    while left:
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(left, UNPACKED_MAX + 1 - len(out))
        except zlib.error as error:
            raise CorruptError(str(error)) from None
        _check_limit(len(out))
        if not member.eof:
            raise CorruptError("the gzip stream is incomplete")
        left = member.unused_data
    return bytes(out)


def _snappy(packed: bytes, codec: object) -> bytes:
    if not packed.startswith(_SNAPPY_HEAD):
        return _snappy_block(packed, codec, 0)
    out, position = bytearray(), 0
    while position < len(packed):
        if packed.startswith(_SNAPPY_HEAD, position):
            position += _SNAPPY_HEAD_BYTES
            continue
        size = int.from_bytes(packed[position : position + 4], signed=True)
        position += 4
        if not 0 <= size <= len(packed) - position:
            raise CorruptError(f"a snappy block of {size} bytes, {len(packed) - position} left")
        out += _snappy_block(packed[position : position + size], codec, len(out))
        position += size
    return bytes(out)


def _snappy_block(block: bytes, codec: object, before: int) -> bytes:
    size = _snappy_size(block)
    _check_limit(before + size)
    unpacked: bytes = codec.decompress(block, size, asbytes=True)  # type: ignore[attr-defined]  # PyArrow is untyped
    return unpacked


def _snappy_size(block: bytes) -> int:
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise CorruptError("a snappy block states no size")
