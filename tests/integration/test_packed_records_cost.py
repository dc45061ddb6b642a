"""Packed records that hide their size, at a real broker: the charges beside the broker's own account (JMX).

    python -m pytest -s tests/integration/test_packed_records_cost.py

`-s` prints the figures. Both requests are such as no honest client sends, and both are charged by latency.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest

from bench.request_time.stand import Stand, ask, standing
from bench.request_time.topics import WRITTEN
from bench.request_time.weir import Weir
from tests.kafka.processes import Processes
from tests.wire.packed import MB, Stream, batch, gzip_stream, noise, zstd_stream
from weir.calibration import bodies
from weir.calibration.batches import varint
from weir.protocol.checksums import crc32c
from weir.protocol.messages import ProduceResponse

pytestmark = pytest.mark.broker

TIMES: Final = 10
WARM_UP: Final = 5
_CHECKSUM: Final = slice(17, 21)


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with standing("3.9.1") as running:
        yield running


def record_head(length: int) -> bytes:
    """The beginning of a record with a value of so many bytes; a zero behind the value ends it."""
    content = 4 + len(varint(length)) + length + 1
    return varint(content) + b"\0\0\0\x01" + varint(length)


def one_record(stream: Stream) -> bytes:
    """A batch of one record that fills the stream, with a right checksum."""
    data = bytearray(batch(stream))
    data[_CHECKSUM] = crc32c(bytes(data[_CHECKSUM.stop :])).to_bytes(4)
    return bytes(data)


def bomb(name: str) -> bytes:
    """A forged gzip size above what is confirmed; random bytes before zeros in zstd and gzip."""
    lead = noise(100_000) if "random" in name or "raw" in name else b""
    if "gzip" in name:
        claim = 2 * MB if "forged" in name else None
        return one_record(gzip_stream(record_head(50 * MB + len(lead)) + lead, 50 * MB + 1, claim=claim))
    return one_record(zstd_stream(record_head(200 * MB + len(lead)) + lead, 200 * MB + 1))


@pytest.mark.parametrize(
    "name", ["forged-gzip", "random-then-zeros-gzip", "repeated-zstd", "raw-then-repeated-zstd"]
)
def test_records_that_hide_their_size_are_charged_near_the_brokers_account(stand: Stand, name: str) -> None:
    batch_bytes = bomb(name)
    with closing(Processes("weir-packed-")) as processes:
        weir = Weir(processes, stand.address[1], None)
        for phase, count in (("warm", WARM_UP), ("counted", TIMES)):
            call = stand.broker_versions.call(
                f"{phase}-{name}", bodies.produce({WRITTEN: (0,)}, batch_bytes, 1)
            )
            stand.truth.begin(call.client_id, time.monotonic())
            for _ in range(count):
                ask(weir.address, call, ProduceResponse)
        truth_us, charged_us = stand.truth.read()[call.client_id], weir.charged_us()[call.client_id]
    print(f"{name}: {truth_us / TIMES:.0f} µs at the broker, {charged_us / TIMES:.0f} charged")
    assert 0.4 <= charged_us / truth_us <= 2.0
