"""Batches of records in a produce request, and how large they are when unpacked.

A batch (magic 2, KIP-98) has its codec in bits 0 to 2 of its attributes, and all its records are packed. Of
the older formats (magic 0 and 1, KIP-32) a packed message holds a set of others.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.unpacked_sizes import unpacked_bytes

CODEC_BITS: Final = 7
BATCH_HEAD_BYTES: Final = 61
"""Of magic 2, up to its records."""
MAGIC_OFFSET: Final = 16
ATTRIBUTES_OFFSET: Final = 22
"""The lower byte of a batch's, the one that has the codec."""
_OLD_ATTRIBUTES_OFFSET: Final = 17
_HEAD_BYTES: Final = 12
"""The offset, and the size of what follows."""
_SIZE: Final = Struct(">i")
_ENTRIES_MAX: Final = 4
"""How many are looked at: since v3 a produce request has one per partition, before one if it is packed."""


def add_unpacked(data: bytearray, start: int, stop: int, end: int, unpacked: list[float]) -> None:
    """Add up the unpacked sizes of the packed batches among the records `data[start:stop]`, of which what is
    in `data[:end]` is at hand, in `unpacked`, by codec. Raises nothing on any bytes. What is not looked at is
    taken to be like what is.
    """
    here = min(stop, end)
    position, found = start, False
    sizes = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for _ in range(_ENTRIES_MAX):
        if position + ATTRIBUTES_OFFSET >= here:
            break
        size: int = _SIZE.unpack_from(data, position + 8)[0]
        behind = min(stop, position + _HEAD_BYTES + size)
        if data[position + MAGIC_OFFSET] < 2:
            codec = data[position + _OLD_ATTRIBUTES_OFFSET] & CODEC_BITS
            packed = _old_packed(data, position, here) if codec else behind
        else:
            codec = data[position + ATTRIBUTES_OFFSET] & CODEC_BITS
            packed = position + BATCH_HEAD_BYTES
        if codec and packed < behind:
            sizes[codec] += unpacked_bytes(codec, data, packed, behind, end)
            found = True
        if behind <= position:
            break
        position = behind
    if found:
        share = (stop - start) / max(1, min(position, stop) - start)
        for codec in range(1, len(unpacked)):
            unpacked[codec] += sizes[codec] * share


def _old_packed(data: bytearray, position: int, here: int) -> int:
    """Where the value of a message begins; `here` if that is not at hand."""
    key = position + (_OLD_ATTRIBUTES_OFFSET + 1) + (8 if data[position + MAGIC_OFFSET] else 0)
    if key + 4 > here:
        return here
    size: int = _SIZE.unpack_from(data, key)[0]
    return min(here, key + 4 + max(0, size) + 4)
