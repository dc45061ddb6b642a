"""Record batches written by kafka-python, and their headers changed."""

from __future__ import annotations

import importlib
import struct
import warnings
from functools import cache
from typing import Any, Final

from weir.protocol.checksums import crc32c

TIME_MS: Final = 1_700_000_000_000
FIELDS: Final = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
"""Offset (bytes) and format of the fields of a batch (KIP-98)."""


@cache
def builders(module: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a deprecated function
        return importlib.import_module(f"kafka.record.{module}")


def batch(
    count: int = 3, codec: int = 0, producer: int = -1, epoch: int = -1, sequence: int = -1, offset: int = 0
) -> bytes:
    """A batch of magic 2, with a key, a value and a header in each record."""
    make = builders("default_records").DefaultRecordBatchBuilder
    transactional = 0
    builder = make(2, codec, transactional, producer, epoch, sequence, 1 << 20)
    for number in range(count):
        headers = [("h", b"x"), ("null", None)]
        builder.append(number, TIME_MS + number * 7 % 5, b"key", b"value %d" % number * 30, headers)
    return struct.pack(">q", offset) + bytes(builder.build())[8:]


def message_set(magic: int, count: int = 3, codec: int = 0) -> bytes:
    builder = builders("legacy_records").LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number in range(count):
        builder.append(number, TIME_MS, b"key" if number else None, b"value %d" % number * 30)
    return bytes(builder.build())


def changed(data: bytes, *, right_crc: bool = True, **fields: int) -> bytes:
    """The batch with other values in its header, and with the checksum that fits them."""
    out = bytearray(data)
    for name, value in fields.items():
        position, form = FIELDS[name]
        struct.pack_into(form, out, position, value)
    if right_crc:
        struct.pack_into(">I", out, FIELDS["crc"][0], crc32c(out[21:]))
    return bytes(out)
