"""Files are split into lines with bounded memory, whatever they contain."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest

from weir.pipeline.ingest import lines
from weir.pipeline.ingest.lines import BLOCK_BYTES, LINE_BYTES_MAX, Unread, blocks


def zstd(data: bytes) -> bytes:
    packed = pa.compress(data, "zstd", asbytes=True)
    assert isinstance(packed, bytes)
    return packed


def split(name: str, data: bytes) -> tuple[list[bytes], list[str]]:
    """Return the lines of a file, and the reasons why parts of it are not read."""
    found = list(blocks(name, pa.py_buffer(data)))
    whole = [block for block in found if isinstance(block, bytes)]
    return [line for block in whole for line in block.split(b"\n")], [
        block.reason for block in found if isinstance(block, Unread)
    ]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("usage-1.jsonl", b"one\ntwo\n"),
        ("usage-1.jsonl", b"one\ntwo"),
        ("usage-1.jsonl.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n")),
        ("usage-1.jsonl.zst", zstd(b"one\n") + zstd(b"two\n")),
    ],
    ids=["plain", "without a last newline", "two gzip members", "two zstd frames"],
)
def test_ingest_splits_a_usage_file_into_its_lines(name: str, data: bytes) -> None:
    assert split(name, data) == ([b"one", b"two"], [])


def test_a_line_that_spans_blocks_of_a_usage_file_stays_whole(tmp_path: Path) -> None:
    line = b"x" * (LINE_BYTES_MAX - 1)
    data = b"\n".join([line] * 10)
    assert len(data) > 2 * BLOCK_BYTES
    (tmp_path / "usage-1.jsonl").write_bytes(data)
    found = b"\n".join(
        block
        for block in blocks("usage-1.jsonl", str(tmp_path / "usage-1.jsonl"))
        if isinstance(block, bytes)
    )
    assert found == data


@pytest.mark.parametrize("end", [b"", b"\nafter\n"])
def test_64_mb_of_zeros_in_a_usage_file_are_one_line_set_aside(end: bytes) -> None:
    found, reasons = split("usage-1.jsonl", b"before\n" + bytes(64 << 20) + end)
    assert found == [b"before", *end.split()]
    assert reasons == [f"the line is longer than {LINE_BYTES_MAX} bytes"]


def test_a_compressed_bomb_is_unpacked_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "UNPACKED_BYTES_MAX", 10 << 20)
    found, reasons = split("usage-1.jsonl.zst", zstd(b"good\n" * (4 << 20)))
    assert 0 < len(found) <= (10 << 20) // len("good\n")
    assert reasons == [f"the rest of the file is not read: it unpacks to over {10 << 20} bytes"]


@pytest.mark.parametrize(("name", "pack"), [("usage-1.jsonl.gz", gzip.compress), ("usage-1.jsonl.zst", zstd)])
def test_whole_lines_before_the_damage_of_a_compressed_file_are_read(name: str, pack: object) -> None:
    """Half of the file is much less than the size of a block."""
    assert callable(pack)
    dice = random.Random(1)
    content = [dice.randbytes(100).hex().encode() for _ in range(5000)]
    packed = pack(b"\n".join(content))
    found, (reason,) = split(name, packed[: len(packed) // 2])
    assert reason.startswith("the rest of the file cannot be unpacked: ")
    assert len(found) > 1000
    assert found[:-1] == content[: len(found) - 1]  # the last line may be a part


def test_a_file_that_is_not_compressed_as_its_name_says_is_set_aside() -> None:
    found, (reason,) = split("usage-1.jsonl.zst", b"no zstd\n")
    assert found == []
    assert reason.startswith("the rest of the file cannot be unpacked: ")
