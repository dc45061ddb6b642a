"""Record batches in a produce request, and their unpacked sizes.

A batch (magic 2, KIP-98) has its codec in bits 0 to 2 of its attributes; all its records are compressed
together. In the older formats (magic 0 and 1, KIP-32) a compressed message contains a set of messages.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol.scanning.unpacked_sizes import GZIP, RATIO_MAX, is_gzip_size_false, unpacked_bytes

CODEC_BITS: Final = 7
BATCH_HEAD_BYTES: Final = 61
"""Size of a batch's header (magic 2)."""
MAGIC_OFFSET: Final = 16
ATTRIBUTES_OFFSET: Final = 22
"""Offset of the lower byte of a batch's attributes, which has the codec."""
_OLD_ATTRIBUTES_OFFSET: Final = 17
_HEAD_BYTES: Final = 12
"""Size of the offset and the length."""
_SIZE: Final = Struct(">i")
_ENTRIES_MAX: Final = 4
"""Number of entries scanned: since v3 a produce request has one per partition; before, one if it is
compressed.
"""


def add_unpacked(
    data: bytearray,
    start: int,
    stop: int,
    end: int,
    unpacked: list[float],
    bounds: list[float],
    confirm: int = 0,
) -> int:
    """Add the unpacked sizes of the compressed batches in `data[start:stop]` to `unpacked`, and the bounds of
    these sizes to `bounds`, by codec. Of these bytes `data[:end]` is at hand. Return the number of bytes that
    are not scanned; the estimate takes them for like the others, the bounds leave them out. Raises nothing,
    whatever the bytes.

    `confirm`: if above 0, unpack gzip streams to confirm their sizes (`is_gzip_size_false`). A false size
    counts as the codec's greatest ratio, for as many batches as `confirm` says.
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
            estimate, bound = unpacked_bytes(codec, data, packed, behind, end)
            if confirm and codec == GZIP and behind <= end and is_gzip_size_false(data, packed, behind):
                estimate = bound = confirm * RATIO_MAX[GZIP] * (behind - packed)
            sizes[codec] += estimate
            if codec < len(bounds):
                bounds[codec] += bound
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
    """Return the position of a message's value; `here` if it is not at hand."""
    key = position + (_OLD_ATTRIBUTES_OFFSET + 1) + (8 if data[position + MAGIC_OFFSET] else 0)
    if key + 4 > here:
        return here
    size: int = _SIZE.unpack_from(data, key)[0]
    return min(here, key + 4 + max(0, size) + 4)
