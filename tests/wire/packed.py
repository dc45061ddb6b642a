"""Batches of packed records that cost a broker more than they show; every block is made by hand.

Each stream comes with the true size of its records, which is known because the stream was made of it.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
MB: Final = 1_000_000
ZSTD_BLOCK: Final = 131072
RAW: Final = 0
RLE: Final = 1
_HEAD: Final = struct.Struct(">qiibihiqqqhii")


class Stream(NamedTuple):
    """A compressed stream, and its true unpacked size (bytes)."""

    codec: int
    packed: bytes
    truth: int


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _run(extra: int) -> bytes:
    """A continued length of LZ4."""
    return b"\xff" * (extra // 255) + bytes([extra % 255])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def noise(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def gzip_stream(lead: bytes, zeros: int, claim: int | None = None) -> Stream:
    """Zeros behind a lead that may be random; `claim` is written into the end instead of the size."""
    packed = gzip.compress(lead + bytes(zeros), mtime=0)
    if claim is not None:
        packed = packed[:-4] + struct.pack("<I", claim)
    return Stream(GZIP, packed, len(lead) + zeros)


def zstd_stream(lead: bytes, zeros: int, raw_block: int = 1000) -> Stream:
    """Raw blocks with the lead, then blocks that repeat a zero."""
    blocks = [(RAW, len(part), part) for part in _parts(lead, raw_block)]
    full, rest = divmod(zeros, ZSTD_BLOCK)
    blocks += [(RLE, ZSTD_BLOCK, b"\0")] * full + [(RLE, rest, b"\0")] * (rest > 0)
    packed = bytearray(struct.pack("<IBB", 0xFD2FB528, 0, 0x58))
    for number, (kind, length, block) in enumerate(blocks):
        packed += (length << 3 | kind << 1 | (number + 1 == len(blocks))).to_bytes(3, "little") + block
    return Stream(ZSTD, bytes(packed), len(lead) + zeros)


def lz4_stream(lead: bytes, zeros: int) -> Stream:
    """One block of up to 4 MB: the lead as literals, then one long copy of zeros."""
    length, copied = len(lead) + 1, zeros - 1 - 5 - 19
    block = b"\xff" + _run(length - 15) + lead + b"\0" + b"\x01\x00" + _run(copied) + b"\x50" + bytes(5)
    packed = struct.pack("<IBB", 0x184D2204, 0x60, 7 << 4) + b"\0" + struct.pack("<I", len(block)) + block
    return Stream(LZ4, packed + bytes(4), length + copied + 19 + 5)


def snappy_stream(lead: bytes, zeros: int) -> Stream:
    """Blocks of 32 KB as snappy-java frames them: the lead as literals, then copies of 64 zeros."""
    packed = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for part in _parts(lead, 32768):
        block = _varint(len(part)) + b"\xf4" + struct.pack("<H", len(part) - 1) + part
        packed += struct.pack(">i", len(block)) + block
    size = 64 * 511 + 1
    block = _varint(size) + b"\x00\x00" + b"\xfe\x01\x00" * 511
    count = zeros // size
    return Stream(
        SNAPPY, bytes(packed + (struct.pack(">i", len(block)) + block) * count), len(lead) + count * size
    )


def batch(stream: Stream, records: int = 1) -> bytes:
    """The stream in a batch of magic 2. Its checksum is not right; Weir does not look at that."""
    head = _HEAD.pack(
        0, 49 + len(stream.packed), 0, 2, 0, stream.codec, records - 1, 0, 0, -1, -1, -1, records
    )
    return head + stream.packed


ATTACKS: Final[dict[str, Callable[[], Stream]]] = {
    "gzip with a forged size": lambda: gzip_stream(b"", 20 * MB, claim=1000),
    "gzip with a forged size of 0": lambda: gzip_stream(noise(1000), 5 * MB, claim=0),
    "gzip with a forged size above what is confirmed": lambda: gzip_stream(b"", 60 * MB, claim=2 * MB),
    "gzip with a random lead": lambda: gzip_stream(noise(100_000), 20 * MB),
    "gzip with a random lead and a forged size": lambda: gzip_stream(noise(100_000), 20 * MB, claim=100_100),
    "zstd of repeated bytes": lambda: zstd_stream(b"", 100 * MB),
    "zstd with raw blocks first": lambda: zstd_stream(noise(100_000), 100 * MB),
    "lz4 with literals first": lambda: lz4_stream(noise(12_000), 4_000_000),
    "snappy with literals first": lambda: snappy_stream(noise(400_000), 10 * MB),
}
"""Makers of streams that the beginning or the end tells lies about."""


@cache
def attack(name: str) -> Stream:
    """Return the stream of this name; to make one takes up to a second."""
    return ATTACKS[name]()
