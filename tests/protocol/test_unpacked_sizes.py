"""How large packed records are when unpacked: against what producers have packed, and streams made by hand.

data/packed_batches.json has whole batches (magic 2) and messages (magic 0, 1) in base64, as Java's
MemoryRecords (zstd-jni, lz4-java, snappy-java, java.util.zip) and librdkafka (its mock cluster kept them)
write them. `unpacked_bytes` is how long the same records are if the same producer writes them unpacked, less
the batch's head.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.protocol.scanning.record_batches import add_unpacked
from weir.protocol.scanning.unpacked_sizes import GZIP, LZ4, SNAPPY, ZSTD, unpacked_bytes

CODECS: Final = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
PACKED: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "packed_batches.json").read_text()
)
TOLERATED: Final = {"gzip": (1.0, 1.0), "snappy": (1.0, 1.0), "lz4": (0.8, 1.25), "zstd": (0.8, 1.6)}
"""Estimate through truth: the first two say what it is."""
ONE_BLOCK_OF_COPIES: Final = ("zstd", "16 of 1000 zeros")
"""What the estimate fails at: see the module."""
RATIO_MAX: Final = {GZIP: 1040, SNAPPY: 24, LZ4: 256, ZSTD: 1 << 19}


class Counting(bytearray):
    """Counts how often a byte of it is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        self.looks += 1
        return super().__getitem__(key)


def size(codec: int, stream: bytes, end: int | None = None) -> int:
    return bounded(codec, stream, end)[0]


def bounded(codec: int, stream: bytes, end: int | None = None) -> tuple[int, int]:
    """The estimate of a stream that lies between other bytes, and its bound; `end` of its bytes are here."""
    data = bytearray(b"before" + stream + b"\xff" * 40)
    return unpacked_bytes(codec, data, 6, 6 + len(stream), 6 + (len(stream) if end is None else end))


def added(batch: bytes | bytearray, *, end: int | None = None) -> list[float]:
    unpacked, bounds = [0.0] * 5, [0.0] * 5
    add_unpacked(bytearray(batch), 0, len(batch), len(batch) if end is None else end, unpacked, bounds)
    return unpacked


def text(length: int, seed: int = 1) -> bytes:
    """Something like a log: of few words, each line another."""
    chosen = random.Random(seed)
    words = [bytes(chosen.choices(b"abcdefghijklmnop", k=chosen.randint(3, 9))) for _ in range(200)]
    made = bytearray()
    while len(made) < length:
        made += chosen.choice(words) + b" "
    return bytes(made[:length])


def name_of(one: dict[str, Any]) -> str:
    return f"{one['producer']}-{one['records']}-{one['codec']}-magic {one['magic']}"


# What producers pack


@pytest.mark.parametrize("one", PACKED, ids=name_of)
def test_estimated_unpacked_sizes_match_batches_of_real_producers(one: dict[str, Any]) -> None:
    batch, truth = base64.b64decode(one["batch"]), one["unpacked_bytes"]
    unpacked = added(batch)
    found = unpacked[CODECS[one["codec"]]]
    assert sum(unpacked) == found
    if truth < 100:  # a stream is longer than what it packs
        assert found <= 100
    elif (one["codec"], one["records"]) == ONE_BLOCK_OF_COPIES:
        assert 100 <= found < truth
    else:
        least, most = TOLERATED[one["codec"]]
        assert least * truth <= found <= most * truth


@pytest.mark.parametrize(
    "one",
    [one for one in PACKED if one["codec"] in ("snappy", "lz4") and one["unpacked_bytes"] > 5000],
    ids=name_of,
)
def test_a_cut_batchs_unpacked_size_is_extrapolated_from_its_beginning(one: dict[str, Any]) -> None:
    """zstd's and gzip's are too short here to be cut in the middle: see below."""
    batch, truth = base64.b64decode(one["batch"]), one["unpacked_bytes"]
    found = added(batch, end=len(batch) // 2)[CODECS[one["codec"]]]
    assert 0.6 * truth <= found <= 1.7 * truth


def test_unpacked_sizes_of_mixed_old_messages_are_summed_by_codec() -> None:
    old = [one for one in PACKED if one["magic"] == 1 and one["unpacked_bytes"] > 5000]
    assert {one["codec"] for one in old} == {"gzip", "snappy", "lz4"}
    apart = [added(base64.b64decode(one["batch"])) for one in old]
    plain = struct.pack(">qiiBBqii", 0, 22 + 8, 0, 1, 0, 0, -1, 8) + b"unpacked"
    together = added(plain + b"".join(base64.b64decode(one["batch"]) for one in old))
    assert together == [sum(sizes) for sizes in zip(*apart, strict=True)]


# gzip


def test_a_cut_gzip_streams_size_is_estimated_from_its_beginning() -> None:
    """Java and librdkafka write one stream with zlib's usual level, as Python does here."""
    for plain in (text(2_000_000), bytes(2_000_000), random.Random(1).randbytes(400_000)):
        stream = gzip.compress(plain, 6)
        assert size(GZIP, stream) == max(len(plain), len(stream))
        found = size(GZIP, stream, min(len(stream) // 2, 250_000))
        assert 0.5 * len(plain) <= found <= 1.5 * len(plain)


@pytest.mark.parametrize("first", [1, 20_000, 1_000_000])
def test_the_last_gzip_members_size_is_not_taken_for_the_whole_stream(first: int) -> None:
    """Java's reader goes on with the next one: an empty one at the end would say 0."""
    plain = text(first)
    for last in (b"", b"x", text(100)):
        stream = gzip.compress(plain) + gzip.compress(last)
        assert size(GZIP, stream) >= 0.5 * (len(plain) + len(last))
    stream = (
        gzip.compress(random.Random(1).randbytes(1000)) + gzip.compress(bytes(500_000)) + gzip.compress(b"")
    )
    assert size(GZIP, stream) >= 200_000


def test_gzip_magic_bytes_inside_data_hardly_change_the_estimate() -> None:
    plain = b"\x1f\x8b\x08" * 3 + random.Random(1).randbytes(5000) + b"\x1f\x8b\x08" + bytes(100)
    stream = gzip.compress(plain, 0)  # as it is
    assert 0.8 * len(plain) <= size(GZIP, stream) <= 1.5 * len(plain)


# snappy


def snappy(plain: bytes) -> bytes:
    """One block, with nothing copied."""
    packed, length = bytearray(), len(plain)
    while length > 127:
        packed.append(length & 127 | 128)
        length >>= 7
    packed.append(length)
    for start in range(0, len(plain), 60):
        piece = plain[start : start + 60]
        packed += bytes([(len(piece) - 1) << 2]) + piece
    return bytes(packed)


SNAPPY_HEAD: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def test_snappy_blocks_give_their_sizes_with_and_without_framing() -> None:
    blocks = [snappy(text(length)) for length in (100, 32768, 5)]
    framed = [struct.pack(">i", len(block)) + block for block in blocks]
    packed = SNAPPY_HEAD + b"".join(framed)
    assert size(SNAPPY, packed) == max(32768 + 105, len(packed))
    assert size(SNAPPY, blocks[1]) == max(32768, len(blocks[1]))
    zeros = snappy(b"")[:0] + b"\x80\x80\x04" + b"\xfe\x01\x00" * 1024  # 64 bytes each, copied
    assert size(SNAPPY, zeros) == 65536
    again = SNAPPY_HEAD + framed[0] + SNAPPY_HEAD + struct.pack(">i", len(zeros)) + zeros
    assert size(SNAPPY, again) == 65536 + 100


# lz4


def lz4_frame(*blocks: tuple[bytes, bool], flags: int = 0x60, most: int = 4, extra: bytes = b"") -> bytes:
    """Blocks, each with whether it is packed."""
    made = struct.pack("<IBB", 0x184D2204, flags, most << 4) + extra + b"\x00"
    for block, packed in blocks:
        made += struct.pack("<I", len(block) | (0 if packed else 0x80000000)) + block
        made += bytes(4) if flags & 16 else b""
    return made + bytes(4)


LZ4_ZEROS: Final = b"\x1f\x00\x01\x00" + b"\xff" * 100 + b"\x05" + b"\x50" + bytes(5)
"""1 literal, 15 + 25500 + 5 + 4 copied, 5 literals."""


@pytest.mark.parametrize(("most", "block_bytes"), [(4, 1 << 16), (5, 1 << 18), (6, 1 << 20)])
def test_all_lz4_blocks_but_the_last_are_taken_for_full(most: int, block_bytes: int) -> None:
    """And the last one is as well packed as they are."""
    block = bytes(block_bytes // 200)
    frame = lz4_frame((block, True), (block, True), (block[: len(block) // 2], True), most=most)
    assert size(LZ4, frame) == pytest.approx(2.5 * block_bytes, rel=0.01)


def test_the_content_size_in_an_lz4_frame_is_not_trusted() -> None:
    claimed = lz4_frame((LZ4_ZEROS, True), flags=0x68, extra=struct.pack("<Q", 1))
    assert size(LZ4, claimed) == 25530


# zstd


def zstd_frame(
    *blocks: tuple[int, int, bytes], content: int | None = None, window: int = 0x58, checksum: bool = False
) -> bytes:
    """Blocks: (type, size, bytes)."""
    flags = (4 if checksum else 0) | (0 if content is None else 0x80)
    made = struct.pack("<IBB", 0xFD2FB528, flags, window)
    made += b"" if content is None else struct.pack("<I", content)
    for number, (kind, length, block) in enumerate(blocks):
        last = number == len(blocks) - 1
        made += (length << 3 | kind << 1 | last).to_bytes(3, "little") + block
    return made + (bytes(4) if checksum else b"")


RAW, RLE, COMPRESSED = 0, 1, 2


def test_repeated_bytes_of_zstd_beyond_1_mb_count_half() -> None:
    """As a broker has them cheaper: measured in docs/background/request-time.md."""
    frame = zstd_frame(*[(RLE, 131072, b"x")] * 60)
    assert bounded(ZSTD, frame) == ((8 + 52 // 2) * 131072, 60 * 131072)


def test_a_zstd_frames_content_size_is_used() -> None:
    block = (COMPRESSED, 300, bytes(300))
    assert size(ZSTD, zstd_frame(block, content=54_321)) == 54_321


@pytest.mark.parametrize("content", [0, 1, 2**32 - 1])
def test_a_forged_content_size_of_zstd_changes_the_last_block_only(content: int) -> None:
    block = (COMPRESSED, 300, bytes(300))
    estimate, bound = bounded(ZSTD, zstd_frame(block, block, block, content=content))
    assert 2 * 131072 <= estimate <= bound == 3 * 131072


def test_a_zstd_stream_may_have_several_frames() -> None:
    one, skipped = zstd_frame((RLE, 1000, b"x")), struct.pack("<II", 0x184D2A5E, 10) + bytes(10)
    assert size(ZSTD, one + skipped + zstd_frame((RLE, 50_000, b"y"), checksum=True) + one) == 52_000


# Anything


@pytest.mark.parametrize("codec", [*CODECS.values(), 0, 5, 7])
@settings(max_examples=50)
@given(data=st.data())
def test_any_bytes_have_an_unpacked_size_within_the_codecs_bounds(codec: int, data: st.DataObject) -> None:
    head = data.draw(
        st.sampled_from([b"", SNAPPY_HEAD, lz4_frame()[:-4], zstd_frame(), gzip.compress(b"x")[:10]])
    )
    stream = head + data.draw(st.binary(max_size=300)) + data.draw(st.sampled_from([b"", b"\xff" * 300]))
    end = data.draw(st.integers(0, len(stream)))
    estimate, bound = bounded(codec, stream, end)
    assert len(stream) <= estimate <= bound <= RATIO_MAX.get(codec, 1) * len(stream)


@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize(
    "piece",
    [
        b"\x00",
        b"\xff",
        b"\x7f",
        b"\x01\x00\x00\x80\x00",
        SNAPPY_HEAD,
        b"\x00\x00\x00\x01\x01",
        b"\x02\x00\x00R",
    ],
)
def test_estimating_an_unpacked_size_reads_a_bounded_number_of_bytes(codec: int, piece: bytes) -> None:
    for head in (b"", SNAPPY_HEAD, lz4_frame()[:-4], zstd_frame(), gzip.compress(b"x")[:10]):
        data = Counting((head + piece * (1 << 18))[: 1 << 18])
        unpacked_bytes(codec, data, 0, len(data), len(data))
        assert data.looks < 2000
