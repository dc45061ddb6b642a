"""Unpacked sizes of compressed records, derived from their framing without unpacking them.

Each function returns two sizes: an estimate, and a bound that the truth cannot exceed, however the stream
was made. The client writes the framing, and a broker notices a lie only after it has unpacked the records.

- snappy: each block begins with its size, and a reader refuses to unpack more. Both sizes are exact.
- lz4, zstd: blocks have a type. The sizes of stored blocks and of zstd's repeated bytes are exact; the
  estimate takes half of the latter beyond the first 1 MB, because they cost a broker half as much. Compressed
  blocks have a maximum size; all but the last one are taken for full. The size of the last one is estimated:
  from zstd's content size, or the ratio of the blocks before it, or else from its first sequences (lz4:
  scanning their tokens), or from the number of its literals and sequences (zstd).
- gzip: the last four bytes have the size. Only unpacking can confirm it; see `is_gzip_size_false`. A size
  above `CONFIRMED_MAX` has the codec's greatest ratio as its bound.

Bytes that have not arrived, or are not scanned, are assumed to have the same ratio as the beginning. For
gzip, at most 64 KB of the beginning are unpacked to find this ratio. In a gzip stream of several members, the
beginning of each member is unpacked, because the end of the stream has the size of the last member only. The
bound of these bytes is the codec's greatest ratio.

Every function takes `(data, start, stop, end)`: the stream is `data[start:stop]`; `data[:end]` has arrived.
The functions raise nothing and read a limited number of bytes, whatever they are. For bytes that a broker
refuses as corrupt, both sizes are between the stream's length and the codec's greatest ratio.

Measured alternatives, over the 86 compressed requests of tests/quotas/data/produce_costs.csv at 3.9.1 and
4.2.0 (least squares of logarithms):

    an estimate by                        is off by (median)   outside 0.5 to 2   least
    unpacked and packed size (this)       1.24, 1.24           3, 2               0.41
    packed size                           1.37, 1.43           14, 12             0.09
    packed size and number of records     1.23, 1.27           5, 6               0.21

A client chooses the size of its records. By their number, one record of 1 GB of zeros would cost as much as
one of 1 kB.

Sources: RFC 1952, RFC 8878, the format descriptions of snappy and of LZ4 frames and blocks; Kafka's
SnappyFactory writes the framing of snappy-java, librdkafka none.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, TypeAlias

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

BLOCKS_MAX: Final = 64
"""Maximum number of compressed blocks read of a stream: snappy's 64 blocks have 2 MB together, those of other
codecs more.
"""
_MEMBERS_MAX: Final = 4
"""Maximum number of members of a gzip stream, or of frames of a zstd stream, that are read. Producers write
one member or frame.
"""
_LITTLE: Final = Struct("<I")
_BIG: Final = Struct(">I")

RATIO_MAX: Final = (1, 1040, 24, 256, 1 << 19)
"""Greatest compression ratio (unpacked size / compressed size) of each codec, by its number in a batch's
attributes. In zstd, a block of 4 bytes can repeat a byte 2^21 times.
"""
Sizes: TypeAlias = tuple[int, int]
"""(estimate, bound) of an unpacked size, in bytes."""


def unpacked_bytes(codec: int, data: bytearray, start: int, stop: int, end: int) -> Sizes:
    """Return the unpacked size of the compressed stream `data[start:stop]`, as (estimate, bound); only the
    bytes before `end` have arrived. `codec` is the number in a batch's attributes; a stream with an unknown
    number counts as not compressed.
    """
    packed = stop - start
    if packed <= 0:
        return 0, 0
    if codec == GZIP:
        found = _gzip(data, start, stop, end)
    elif codec == SNAPPY:
        found = _snappy(data, start, stop, end)
    elif codec == LZ4:
        found = _lz4(data, start, stop, end)
    elif codec == ZSTD:
        found = _zstd(data, start, stop, end)
    else:
        return packed, packed
    estimate, bound = found
    most = packed * RATIO_MAX[codec]
    estimate = max(packed, min(estimate, most))
    return estimate, max(estimate, min(bound, most))


_GZIP_HEAD: Final = b"\x1f\x8b\x08"
_GZIP_LEAST: Final = 18
_SAMPLE_PACKED: Final = 4096
_SAMPLE_UNPACKED: Final = 32768
_PART_UNPACKED: Final = 8192
"""Maximum number of bytes to unpack in each of the two steps that sample a member of a gzip stream."""
CONFIRMED_MAX: Final = 1 << 20
"""Maximum size (bytes) that a gzip stream may state at its end for Weir to confirm it by unpacking the
stream, which takes 2 ms for this size.
"""


def _gzip(data: bytearray, start: int, stop: int, end: int) -> Sizes:
    """Return (estimate, bound) of a gzip stream. The stream's last four bytes state its unpacked size (modulo
    2^32, but a stream of more bytes is never in the buffer as a whole). If they have not arrived, or the
    stream has several members, the estimate comes from unpacking samples.
    """
    most = (stop - start) * RATIO_MAX[GZIP]
    if end < stop:
        return int(_gzip_ratio(data, start, end, _SAMPLE_UNPACKED) * (stop - start)), most
    if stop - start < _GZIP_LEAST:
        return 0, 0
    if data.find(_GZIP_HEAD, start + 1, stop) >= 0:
        return _gzip_parts(data, start, stop), most
    size: int = _LITTLE.unpack_from(data, stop - 4)[0]
    return size, size if size <= CONFIRMED_MAX else most


def is_gzip_size_false(data: bytearray, start: int, stop: int) -> bool:
    """Unpack a gzip stream that has arrived in full. Return True if it has more bytes than its last four
    bytes state: no honest writer produces such a stream, and Java's reader refuses it. Stop unpacking behind
    the stated size. Return False, without unpacking, for streams of several members, and for stated sizes
    above `CONFIRMED_MAX`.
    """
    if stop - start < _GZIP_LEAST or data.find(_GZIP_HEAD, start + 1, stop) >= 0:
        return False
    size: int = _LITTLE.unpack_from(data, stop - 4)[0]
    if size > CONFIRMED_MAX:
        return False
    try:
        return len(zlib.decompressobj(31).decompress(bytes(data[start:stop]), size + 1)) > size
    except zlib.error:
        return False


def _gzip_parts(data: bytearray, start: int, stop: int) -> int:
    """Estimate the unpacked size (bytes) of a gzip stream of several members, from unpacking the beginning of
    each. A position that only looks like a member's beginning gets the ratio of the member before it.
    """
    unpacked, ratio = 0.0, 1.0
    position = start
    for number in range(_MEMBERS_MAX):
        behind = data.find(_GZIP_HEAD, position + 1, stop) if number + 1 < _MEMBERS_MAX else -1
        ratio = _gzip_ratio(data, position, stop, _PART_UNPACKED) or ratio
        if behind < 0:
            break
        unpacked += ratio * (behind - position)
        position = behind
    return int(unpacked + ratio * (stop - position))


def _gzip_ratio(data: bytearray, start: int, here: int, unpacked_max: int) -> float:
    """Return the compression ratio near the start of a gzip stream, measured by unpacking two samples; 0 if
    the bytes are not gzip. The second sample counts, because the compressor finds little to copy in the first
    one.
    """
    unpacker = zlib.decompressobj(31)
    position, ratio = start, 0.0
    for _ in range(2):
        most = min(here, position + _SAMPLE_PACKED)
        sample = bytes(data[position:most])
        try:
            unpacked = len(unpacker.decompress(sample, unpacked_max))
        except zlib.error:
            break
        used = len(sample) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
        if unpacked == 0 or used <= 0:
            break
        ratio = unpacked / used
        position += used
    return ratio


_SNAPPY_HEAD: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEAD_BYTES: Final = 16
"""Size (bytes) of the header that snappy-java writes: 8 magic bytes and two int32 version numbers."""


def _snappy(data: bytearray, start: int, stop: int, end: int) -> Sizes:
    """Return (estimate, bound) of a snappy stream: the sum of the unpacked sizes that its blocks state at
    their beginning. A stream without snappy-java's header is one block.
    """
    here = min(stop, end)
    if not data.startswith(_SNAPPY_HEAD, start):
        size = _varint(data, start, here)
        return size, size
    position, unpacked = start, 0
    for _ in range(BLOCKS_MAX):
        if data.startswith(_SNAPPY_HEAD, position):  # readers skip repeated headers too
            position += _SNAPPY_HEAD_BYTES
        if position + 4 >= here:
            break
        size = _BIG.unpack_from(data, position)[0]
        unpacked += _varint(data, position + 4, here)
        position += 4 + size
    return _scaled(SNAPPY, unpacked, unpacked, position, start, stop)


def _varint(data: bytearray, position: int, here: int) -> int:
    """Return the value of the varint at `position`: at most 32 bits, the lowest first. Bytes from `here` on
    have not arrived and count as 0.
    """
    value = shift = 0
    while position < here and shift < 35:
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            break
        position += 1
        shift += 7
    return value


def _scaled(codec: int, unpacked: int, most: int, position: int, start: int, stop: int) -> Sizes:
    """Return (estimate, bound) of the stream `data[start:stop]`, if the bytes before `position` unpack to
    `unpacked` (at most `most`) bytes. The estimate gives the other bytes the same ratio, the bound gives them
    the codec's greatest ratio.
    """
    if position >= stop:
        return unpacked, most
    scaled = unpacked * (stop - start) // max(1, position - start)
    return scaled, most + (stop - position) * RATIO_MAX[codec]


_LZ4_HEAD_BYTES: Final = 7
_RAW: Final = 0x80000000


def _lz4(data: bytearray, start: int, stop: int, end: int) -> Sizes:
    """Return (estimate, bound) of an LZ4 frame, from its blocks. The frame's own size field is ignored,
    because brokers do not compare it with the blocks.
    """
    here = min(stop, end)
    if here - start < _LZ4_HEAD_BYTES:
        return 0, (stop - start) * RATIO_MAX[LZ4]
    flags = data[start + 4]
    most = 1 << (8 + 2 * (data[start + 5] >> 4 & 7))
    position = start + _LZ4_HEAD_BYTES + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    check = 4 if flags & 16 else 0
    unpacked = packed = last = last_size = 0
    for _ in range(BLOCKS_MAX):
        if position + 4 > here:
            break
        size: int = _LITTLE.unpack_from(data, position)[0]
        if size == 0:
            position = stop
            break
        if last_size:  # not the last block: full
            unpacked, packed, last_size = unpacked + most, packed + last_size, 0
        position += 4
        if size & _RAW:
            size &= _RAW - 1
            unpacked, packed = unpacked + size, packed + size
        else:
            last, last_size = position, size
        position += size + check
    if last_size:
        behind = min(here, last + last_size)
        like = last_size * unpacked // packed if packed else _lz4_block(data, last, behind, last_size)
        most = min(most, last_size * RATIO_MAX[LZ4])
        return _scaled(LZ4, unpacked + min(most, like), unpacked + most, position, start, stop)
    return _scaled(LZ4, unpacked, unpacked, position, start, stop)


_SEQUENCES_MAX: Final = 32


def _lz4_block(data: bytearray, start: int, stop: int, size: int) -> int:
    """Estimate the unpacked size (bytes) of a compressed LZ4 block of `size` bytes; only `data[start:stop]`
    has arrived. The first sequences are read. The other bytes are assumed to have the ratio of the second
    half of these sequences, because the compressor finds little to copy for the first half.
    """
    position, unpacked = start, 0
    half, half_unpacked = start, 0
    for number in range(_SEQUENCES_MAX):
        if position >= stop:
            break
        if number == _SEQUENCES_MAX // 2:
            half, half_unpacked = position, unpacked
        token = data[position]
        position += 1
        literals, match = token >> 4, token & 15
        if literals == 15:
            extra = _lz4_run(data, position, stop)
            position += extra // 255 + 1
            literals += extra
        position += literals + 2  # and the offset of the match
        unpacked += literals
        if position >= stop:
            break  # the last sequence copies nothing
        if match == 15:
            extra = _lz4_run(data, position, stop)
            position += extra // 255 + 1
            match += extra
        unpacked += match + 4
    rest = max(0, start + size - position)
    return unpacked + rest * (unpacked - half_unpacked) // max(1, position - half)


_RUN_MAX: Final = 16450
"""Maximum number of bytes in which LZ4 writes one length: enough for a run of 4 MB, the largest block."""


def _lz4_run(data: bytearray, position: int, stop: int) -> int:
    """Return the rest of an LZ4 length that is continued at `position`: the sum of all following bytes of 255
    and the first other byte.
    """
    most = min(stop, position + _RUN_MAX)
    if position < most and data[position] != 255:
        return data[position]
    full = most - position - len(data[position:most].lstrip(b"\xff"))
    return 255 * full + (data[position + full] if position + full < most else 0)


_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPED: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 131072
_REPEATED_FULL: Final = 1 << 20
"""Number of repeated bytes in a zstd frame that the estimate counts in full; further ones count half, because
they cost a broker less. Measured at 3.9.1: 1 MB of zeros costs a broker 0.2 µs per kB, 7 to 200 MB cost it
0.06 to 0.1.
"""
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_BYTES: Final = (0, 2, 4, 8)


def _zstd(data: bytearray, start: int, stop: int, end: int) -> Sizes:
    here = min(stop, end)
    position, unpacked, most = start, 0, 0
    for _ in range(_MEMBERS_MAX):
        if position + 8 > here:
            break
        magic: int = _LITTLE.unpack_from(data, position)[0]
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPED:
            skipped: int = _LITTLE.unpack_from(data, position + 4)[0]
            position += 8 + skipped
        elif magic == _ZSTD_MAGIC:
            size, size_most, position = _zstd_frame(data, position, here)
            unpacked, most = unpacked + size, most + size_most
        else:
            break
    return _scaled(ZSTD, unpacked, most, position, start, stop)


def _zstd_frame(data: bytearray, start: int, here: int) -> tuple[int, int, int]:
    """Return (estimated unpacked size of the zstd blocks read, bound of that size, position behind these
    blocks).
    """
    flags = data[start + 4]
    whole, position, most = flags & 32, start + 5, _ZSTD_BLOCK_MAX
    if not whole:
        window = 1 << (10 + (data[position] >> 3))
        most = min(most, window + (window >> 3) * (data[position] & 7))
        position += 1
    position += _DICTIONARY_BYTES[flags & 3]
    width = _CONTENT_BYTES[flags >> 6] or (1 if whole else 0)
    content = int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)
    position += width
    unpacked = repeated = packed = last = last_size = 0
    ended = False
    for _ in range(BLOCKS_MAX):
        if position + 3 > here:
            break
        head = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        ended, kind, size = head & 1 == 1, head >> 1 & 3, head >> 3
        position += 3
        if last_size and size:  # not the last block: full
            unpacked, packed, last_size = unpacked + most, packed + last_size, 0
        if kind == 2:
            last, last_size = position, size
            position += size
        elif kind == 1:
            repeated, packed = repeated + size, packed + 1
            position += 1
        else:
            unpacked, packed = unpacked + size, packed + size
            position += size
        if ended:
            break
    if ended and flags & 4:
        position += 4  # a checksum
    bound = unpacked + repeated
    estimate = bound - max(0, repeated - _REPEATED_FULL) // 2
    if not last_size:
        return estimate, bound, position
    if ended and width:
        like = max(0, content - bound)
    elif packed:
        like = last_size * bound // packed
    else:
        like = _zstd_block(data, last, min(here, position))
    return estimate + min(most, like), bound + most, position


_MATCH_BYTES: Final = 13
"""Assumed average number of bytes that one zstd sequence copies: 12 to 13 in JSON and in text."""


def _zstd_block(data: bytearray, start: int, stop: int) -> int:
    """Estimate the unpacked size (bytes) of a compressed zstd block: its literals, and `_MATCH_BYTES` for
    each of its sequences.
    """
    if stop - start < 8:
        return 0
    bits = int.from_bytes(data[start : start + 5], "little")
    kind, form = bits & 3, bits >> 2 & 3
    if kind < 2:  # stored, or one byte repeated
        width = (1, 2, 1, 3)[form]
        literals = (bits & ((1 << (8 * width)) - 1)) >> (4 if form & 1 else 3)
        behind = start + width + (literals if kind == 0 else 1)
    else:
        width, size = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        literals = (bits >> 4) & ((1 << size) - 1)
        behind = start + width + ((bits >> (4 + size)) & ((1 << size) - 1))
    if behind + 3 > stop:
        return literals
    sequences = data[behind]
    if sequences == 255:
        sequences = data[behind + 1] + (data[behind + 2] << 8) + 0x7F00
    elif sequences > 127:
        sequences = ((sequences - 128) << 8) + data[behind + 1]
    return literals + _MATCH_BYTES * sequences
