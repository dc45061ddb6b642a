"""Produce requests whose records are dear to measure: many small parts, or other sizes than they claim."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.wire.frames import request
from weir.protocol.messages import ProduceRequest

SIZE: Final = 900_000
_GZIP, _ZSTD = 1, 4
_RECORD_BATCH = struct.Struct(">qiibIhiqqqhii")
_BATCH_LENGTH_FROM = 12


def batch(codec: int, packed: bytes) -> bytes:
    """Return a record batch (format 2) with these records; its checksum is wrong, which a broker notices."""
    length = _RECORD_BATCH.size - _BATCH_LENGTH_FROM + len(packed)
    return _RECORD_BATCH.pack(0, length, -1, 2, 0, codec, 0, 0, 0, -1, -1, -1, 1) + packed


def _zstd(blocks: bytes) -> bytes:
    """Return a zstd frame without content size, with a window of 8 MB."""
    return b"\x28\xb5\x2f\xfd\x00\x68" + blocks


def _block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    """Return a zstd block: kind 0 is raw, 1 is one byte repeated."""
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


def _small_blocks() -> bytes:
    return _zstd(_block(1, 1, b"x") * (SIZE // 4) + _block(1, 1, b"x", last=True))


def _raw_then_repeated() -> bytes:
    raw = _block(0, 100_000, bytes(100_000))
    return _zstd(raw + _block(1, 128 * 1024, b"x") * ((SIZE - len(raw)) // 4) + _block(1, 1, b"x", last=True))


def _gzip_forged() -> bytes:
    maker = zlib.compressobj(wbits=31)
    packed = maker.compress(bytes(SIZE * 1000)) + maker.flush()
    return packed[:-4] + struct.pack("<I", 1)


def _gzip_members() -> bytes:
    maker = zlib.compressobj(wbits=31)
    member = maker.compress(b"x") + maker.flush()
    return member * (SIZE // len(member))


def _produce(codec: int, pack: Callable[[], bytes]) -> bytes:
    one = ProduceRequest.PartitionProduceData(records=batch(codec, pack()))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[one])
    return request(ProduceRequest(acks=1, topic_data=[topic]), 9)


BATCHES: Final = {
    "gzip-forged": (
        "gzip whose last field says that it has one byte",
        partial(_produce, _GZIP, _gzip_forged),
    ),
    "gzip-members": ("gzip of many members", partial(_produce, _GZIP, _gzip_members)),
    "zstd-blocks": ("zstd of many blocks of one byte", partial(_produce, _ZSTD, _small_blocks)),
    "zstd-raw": ("zstd, raw blocks before repeated bytes", partial(_produce, _ZSTD, _raw_then_repeated)),
}
"""By name: a description, and a function that makes the request."""
