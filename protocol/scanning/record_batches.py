"""Unpacked sizes of the record batches in a produce request.

A batch (magic 2, KIP-98) has its codec in bits 0 to 2 of its attributes; all its records are compressed
together. In the older formats (magic 0 and 1, KIP-32) a compressed message contains a set of messages.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from weir.protocol.scanning.unpacked_sizes import GZIP, RATIO_MAX, is_gzip_size_false, unpacked_bytes

CODEC_BITS: Final = 7
BATCH_HEAD_BYTES: Final = 61
"""Size (bytes) of the header of a batch (magic 2)."""
MAGIC_OFFSET: Final = 16
ATTRIBUTES_OFFSET: Final = 22
"""Offset (bytes) of the lower byte of a batch's attributes, which contains the codec."""
PACKED_WEIGHT: Final = 3
"""Number of unpacked bytes that take a broker as long as one packed byte: it decodes packed bytes, but copies
the unpacked ones that repeat. A fit to data that packs 1:1 to 400:1, with every codec.
"""
_OLD_ATTRIBUTES_OFFSET: Final = 17
ENTRY_HEAD_BYTES: Final = 12
"""Size (bytes) of the first two fields of a batch or message: an int64 offset, and an int32 length of the
rest.
"""
_SIZE: Final = Struct(">i")
_ENTRIES_MAX: Final = 4
"""Maximum number of batches (or of messages in the older formats) scanned in one partition. A partition has
one batch since v3 of produce requests; before v3, one message if the records are compressed.
"""


def add_unpacked(
    data: bytearray,
    start: int,
    stop: int,
    end: int,
    unpacked: list[float],
    bounds: list[float],
    confirm: int = 0,
    packed_weight: int = 0,
) -> int:
    """Estimate the size (bytes) to which the compressed batches of one partition unpack. The partition's
    records are `data[start:stop]`; only the bytes before `end` have arrived. Add the estimate to
    `unpacked[codec]`, and a bound that the true size cannot exceed to `bounds[codec]`. Return
    the number of bytes that are not scanned. The estimate assumes that these bytes have the same unpacked
    size per byte as the scanned batches; `bounds` leaves them out. Never raises.

    `confirm`: 0 to trust the size that a gzip stream states. Above 0, streams are unpacked to confirm their
    sizes (`is_gzip_size_false`), and a batch with a false size counts like `confirm` batches with gzip's
    greatest ratio. `packed_weight`: number of unpacked bytes as which each packed byte counts, in addition.
    """
    here = min(stop, end)
    position, found = start, False
    sizes = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for _ in range(_ENTRIES_MAX):
        if position + ATTRIBUTES_OFFSET >= here:
            break
        size: int = _SIZE.unpack_from(data, position + 8)[0]
        behind = min(stop, position + ENTRY_HEAD_BYTES + size)
        if data[position + MAGIC_OFFSET] < 2:
            codec = data[position + _OLD_ATTRIBUTES_OFFSET] & CODEC_BITS
            packed = _old_packed(data, position, here) if codec else behind
        else:
            codec = data[position + ATTRIBUTES_OFFSET] & CODEC_BITS
            packed = position + BATCH_HEAD_BYTES
        if codec and packed < behind:
            estimate, bound = unpacked_bytes(codec, data, packed, behind, end)
            if confirm and codec == GZIP and behind <= end and is_gzip_size_false(data, packed, behind):
                estimate = bound = confirm * RATIO_MAX[GZIP] * (behind - packed)
            weighed = packed_weight * (behind - packed)
            sizes[codec] += weighed + estimate
            if codec < len(bounds):
                bounds[codec] += weighed + bound
            found = True
        if behind <= position:
            break
        position = behind
    if found:
        share = (stop - start) / max(1, min(position, stop) - start)
        for codec in range(1, len(unpacked)):
            unpacked[codec] += sizes[codec] * share
    return max(0, stop - position)


def _old_packed(data: bytearray, position: int, here: int) -> int:
    """Return the position of a compressed message's value (magic 0 or 1), which contains the compressed set
    of messages; `here` if the value has not arrived.
    """
    key = position + (_OLD_ATTRIBUTES_OFFSET + 1) + (8 if data[position + MAGIC_OFFSET] else 0)
    if key + 4 > here:
        return here
    size: int = _SIZE.unpack_from(data, key)[0]
    return min(here, key + 4 + max(0, size) + 4)
