"""Record batches (format 2) for the produce requests of a calibration."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.protocol.checksums import crc32c
from weir.protocol.scanning.record_batches import PACKED_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KB: Final = 1000.0
RECORD_BYTES: Final = 1000
NO_CODEC: Final = ""
_CODEC_BITS: Final = {NO_CODEC: 0, "gzip": 1, "zstd": 4}
_TAIL: Final = struct.Struct(">hiqqqhii")
_HEAD: Final = struct.Struct(">qiibI")
_HEAD_COUNTED: Final = 9
"""Number of bytes of `_HEAD` that the batch's length field counts: leader epoch, magic and checksum."""
_WORDS: Final = [f"{word}{number:x}" for number in range(0, 4000, 7) for word in ("key", "user", "at", "is")]


class Batch(NamedTuple):
    """An encoded record batch."""

    data: bytes
    codec: str = NO_CODEC
    weighed_kb: float = 0.0
    """Size (kB) by which unpacking is charged: the uncompressed size of the records, and the compressed one
    times `PACKED_WEIGHT`; 0 if the batch is not compressed.
    """


def batch(values: Sequence[bytes], now_ms: int, codec: str = NO_CODEC) -> Batch:
    """Encode a batch with one record per value, all with the timestamp `now_ms`. Raises KeyError for a codec
    that `compressors` does not return.
    """
    records = b"".join(map(_record, range(len(values)), values))
    packed = compressors()[codec](records) if codec else records
    counts = (_CODEC_BITS[codec], len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values))
    rest = _TAIL.pack(*counts) + packed
    data = _HEAD.pack(0, _HEAD_COUNTED + len(rest), -1, 2, crc32c(rest)) + rest
    return Batch(data, codec, (len(records) + PACKED_WEIGHT * len(packed)) / KB if codec else 0.0)


def compressors() -> dict[str, Callable[[bytes], bytes]]:
    """Return the compression functions by Kafka's name of the codec: gzip, and zstd if this Python has a zstd
    module.
    """
    found: dict[str, Callable[[bytes], bytes]] = {"gzip": lambda data: gzip.compress(data, 6)}
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # since Python 3.14
    except ImportError:
        return found
    found["zstd"] = zstd.compress
    return found


def text(count: int) -> list[bytes]:
    """Return `count` different records of 1 kB that consist of words, so that they compress like text."""
    return [words(index) for index in range(count)]


def words(index: int) -> bytes:
    """Return the record with this index, 1 kB of words; the same index always gives the same record."""
    state, parts, size = index * 7919 + 13, list[str](), 0
    while size < RECORD_BYTES:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        parts.append(_WORDS[(state >> 8) % len(_WORDS)])
        size += len(parts[-1]) + 1
    return " ".join(parts).encode()[:RECORD_BYTES]


def _record(index: int, value: bytes) -> bytes:
    """Encode a record: attributes, timestamp delta 0, offset delta `index`, no key, the value, no headers."""
    content = b"\0\0" + varint(index) + b"\x01" + varint(len(value)) + value + b"\0"
    return varint(len(content)) + content


def varint(value: int) -> bytes:
    """Encode a value >= 0 as Kafka's zigzag varint."""
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
