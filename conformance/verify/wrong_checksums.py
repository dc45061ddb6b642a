"""Recognises common mistakes in the checksum of a batch of magic 2 (KIP-98), to help authors of clients."""

from __future__ import annotations

import zlib
from typing import Final

from weir.protocol.checksums import crc32c

EXPLAINED_MAX: Final = 4096
"""Maximum size (bytes) of a batch whose mistake is looked for: each guess costs another checksum."""
_CRC_START, _CRC_STOP = 17, 21
_STARTS: Final = {"base_offset": 0, "length": 8, "partition_leader_epoch": 12, "magic": 16}
"""Offset (bytes) of the fields before the checksum."""


def explain(batch: bytes, found: int) -> str:
    """Return one line about a wrong checksum: the bytes that it should cover, and the mistake if known."""
    asked = (
        "A batch's checksum is not the CRC-32C of the bytes from attributes to the end of the batch. "
        "The records are not opened."
    )
    mistake = _mistake(batch, found) if len(batch) <= EXPLAINED_MAX else ""
    return f"{asked} {mistake}" if mistake else asked


def _mistake(batch: bytes, found: int) -> str:
    covered = batch[_CRC_STOP:]
    if found == zlib.crc32(covered):
        return "It is a CRC-32 of these bytes."
    if found.to_bytes(4, "little") == crc32c(covered).to_bytes(4):
        return "Its bytes are in the wrong order."
    for name, start in _STARTS.items():
        if found in (
            crc32c(batch[start:_CRC_START] + covered),
            crc32c(batch[start:_CRC_START] + bytes(4) + covered),
        ):
            return f"It is a CRC-32C that begins at {name}."
    return ""
