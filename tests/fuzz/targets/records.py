"""Records in produce requests, record batches, unpacked sizes. These raise nothing, whatever the bytes."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import Final

from tests.fuzz.growth import FILLERS, fillers, wide
from tests.fuzz.target import Grow, Target, choosing, chosen
from tests.protocol.generate import sample
from weir.protocol.codec import codec
from weir.protocol.messages import ProduceRequest
from weir.protocol.scanning.produced_records import records_in
from weir.protocol.scanning.record_batches import BATCH_HEAD_BYTES, add_unpacked
from weir.protocol.scanning.unpacked_sizes import GZIP, LZ4, SNAPPY, ZSTD, unpacked_bytes
from weir.protocol.values import schema_of

RATIO_MAX: Final = {GZIP: 1040, SNAPPY: 24, LZ4: 256, ZSTD: 1 << 19}
"""As in the formats' documents; see `protocol/scanning/unpacked_sizes.py`."""
PARTITIONS_MAX: Final = 8
VERSIONS: Final = tuple(schema_of(ProduceRequest).versions)
STREAMS: Final = {
    GZIP: gzip.compress(b"records " * 40, mtime=0),
    SNAPPY: b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\x20\x7cabc",
    LZ4: bytes.fromhex("04224d18 60 40 82 05000000 1f61010000 00000000"),
    ZSTD: bytes.fromhex("28b52ffd 00 58 4d 0000 10 61 62 01 0f 0a 00"),
}
"""The beginning of a stream by codec."""


def run(data: bytes) -> None:
    """Find records and their unpacked sizes in a produce request that is at hand in part."""
    index, rest = chosen(data, len(VERSIONS))
    end = max(len(rest) - (rest[0] % 4 if rest else 0), 1)
    body = bytearray(rest or b"\0")
    found = records_in(VERSIONS[index])(body, 1, end, PARTITIONS_MAX)
    topics, begun, _partitions, first, spans = found
    assert len(spans) <= PARTITIONS_MAX
    assert begun <= max(topics, 0)
    assert 0 <= first <= end
    for start, stop in spans:
        assert start <= stop
        _check_batches(body, start, stop, end)


def run_batches(data: bytes) -> None:
    cut, body = data[:1], bytearray(data[1:])
    end = len(body) * (cut or b"\xff")[0] // 255
    _check_batches(body, 0, len(body), end)
    for kind, ratio in RATIO_MAX.items():
        estimate, bound = unpacked_bytes(kind, body, 0, len(body), end)
        assert len(body) <= estimate <= bound <= len(body) * ratio


def _check_batches(body: bytearray, start: int, stop: int, end: int) -> None:
    unpacked, bounds = [0.0] * 5, [0.0] * 5
    left = add_unpacked(body, start, stop, end, unpacked, bounds)
    assert 0 <= left <= stop - start
    assert unpacked[0] == bounds[0] == 0
    for kind, ratio in RATIO_MAX.items():
        assert 0 <= unpacked[kind] <= (stop - start + BATCH_HEAD_BYTES) * ratio * 4
        assert 0 <= bounds[kind] <= (stop - start) * ratio
        assert left or unpacked[kind] <= bounds[kind]


def batch(kind: int, stream: bytes) -> bytes:
    head = struct.pack(">qiibIh", 0, 49 + len(stream), 0, 2, 0, kind)
    return head + bytes(BATCH_HEAD_BYTES - len(head)) + stream


def message(kind: int, stream: bytes, magic: int) -> bytes:
    """A message of magic 0 or 1 with this codec."""
    head = struct.pack(">Ibb", 0, magic, kind) + bytes(8 * magic) + struct.pack(">ii", -1, len(stream))
    return struct.pack(">qi", 0, len(head) + len(stream)) + head + stream


def batch_seeds() -> Sequence[bytes]:
    """Return batches and bare streams of all codecs and formats."""
    return [
        b"\xff" + made
        for kind, stream in STREAMS.items()
        for made in (stream, batch(kind, stream) * 2, message(kind, stream, 0), message(kind, stream, 1))
    ]


def seeds() -> Sequence[bytes]:
    made = []
    for index, version in enumerate(VERSIONS):
        value = sample(ProduceRequest, version)
        value.topic_data[0].partition_data[0].records = batch(1 + index % 4, STREAMS[1 + index % 4])
        made.append(choosing(index, b"\0" + codec(ProduceRequest, version).encode(value)))
    return made


def growing() -> dict[str, Grow]:
    grown: dict[str, Grow] = {}
    for index, version in enumerate(VERSIONS):
        grown |= wide(ProduceRequest, version, choosing(index, b"\0"))
    return grown


def growing_batches() -> dict[str, Grow]:
    grown: dict[str, Grow] = dict(fillers(b"\xff"))
    for kind, stream in STREAMS.items():
        for name, filler in FILLERS.items():
            grown[f"codec {kind}, {name}"] = _endless(stream, filler)
        grown[f"codec {kind}, streams"] = _endless(b"", stream)
        grown[f"codec {kind}, batches"] = _endless(b"", batch(kind, b""))
    grown["members of gzip"] = _endless(STREAMS[GZIP], b"\x1f\x8b\x08")
    return grown


def _endless(head: bytes, filler: bytes) -> Grow:
    return lambda count: b"\xff" + batch(1, head + filler * count)


REQUESTS: Final = Target("produced-records", run, seeds, growing)
BATCHES: Final = Target("record-batches", run_batches, batch_seeds, growing_batches)
