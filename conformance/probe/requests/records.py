"""Bytes inside fields: record batches with one record, and a consumer's subscription."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from weir.protocol.checksums import crc32c

TIME_MS: Final = 1_700_000_000_000
VALUE: Final = b"weir-probe"
_BATCH: Final = struct.Struct(">hiqqqhii")
_NONE: Final = -1


def record_batch(version: int, value: bytes = VALUE, time_ms: int = TIME_MS) -> bytes:
    """Return a batch in the format of a Produce version: magic 0 (versions 0 and 1), magic 1 (version 2), or
    magic 2 (KIP-32, KIP-98). It has one record without key.
    """
    if version < 3:
        return _message(1 if version == 2 else 0, value, time_ms)
    record = b"\0\0\0" + _varint(_NONE) + _varint(len(value)) + value + _varint(0)
    body = _BATCH.pack(0, 0, time_ms, time_ms, _NONE, _NONE, _NONE, 1) + _varint(len(record)) + record
    head = struct.pack(">ibI", 0, 2, crc32c(body))
    return struct.pack(">qi", 0, len(head) + len(body)) + head + body


def _varint(value: int) -> bytes:
    """Encode a signed number by zigzag, seven bits in each byte."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def _message(magic: int, value: bytes, time_ms: int) -> bytes:
    timestamp = struct.pack(">q", time_ms) if magic else b""
    body = bytes((magic, 0)) + timestamp + struct.pack(">ii", _NONE, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def subscription(topic: str) -> bytes:
    """Return a consumer's metadata in JoinGroup (ConsumerProtocolSubscription, version 0)."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", _NONE)
