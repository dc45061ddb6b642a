"""Speed of `verify` on one core: `python -m tests.conformance.speed`. CPU time; captures are made before."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.conformance.batches import builders
from tests.conformance.captures import answered, nested, produce, produced, sent
from tests.wire.frames import request, response
from weir.conformance.verify import Severity, verify
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.conformance.events import Bytes
    from weir.protocol.values import Message

FRAMES = 60
EXCHANGES = 10_000
READ_BYTES = 65536


def bulk(records: int, value_bytes: int, codec: int) -> list[Bytes]:
    """Produce requests of about 1 MB, read in parts, and their responses."""
    events = []
    builder = builders("default_records").DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
    source = random.Random(1)
    for number in range(records):
        value = source.randbytes(value_bytes // 2) + bytes(value_bytes // 2)
        builder.append(number, number, b"key", value, [])
    data = bytes(builder.build())
    for number in range(FRAMES):
        frame = produce(data, 9, number)
        events += [sent(frame[at : at + READ_BYTES], number) for at in range(0, len(frame), READ_BYTES)]
        events.append(answered(produced(9, number), number))
    return events


def exchanges(asked: Message, answer: Message, version: int) -> list[Bytes]:
    """Small requests and their responses."""
    return [
        event
        for number in range(EXCHANGES)
        for event in (sent(request(asked, version, number)), answered(response(answer, version, number)))
    ]


def seconds(events: Sequence[Bytes]) -> float:
    """CPU time (s) of verifying a capture, which may have only notes."""
    before = time.process_time()
    for finding in verify(events):
        assert finding.severity is Severity.NOTE
    return time.process_time() - before


def main() -> None:
    """Print the speeds."""
    for records, size, codec in ((1000, 1000, 0), (10_000, 100, 0), (1000, 1000, 1)):
        events = bulk(records, size, codec)
        speed = sum(len(event.data) for event in events) / seconds(events) / 1e6
        print(f"produce, {records} records of {size} B, codec {codec}: {speed:.0f} MB/s")
    topic = MetadataResponse.MetadataResponseTopic(
        name="orders", partitions=[MetadataResponse.MetadataResponsePartition() for _ in range(3)]
    )
    for name, asked, answer, version in (
        ("heartbeat", HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse(), 4),
        ("metadata", MetadataRequest(), MetadataResponse(topics=[topic]), 9),
    ):
        print(f"{name}: {2 * EXCHANGES / seconds(exchanges(asked, answer, version)):.0f} frames/s")
    for megabytes in (2.5, 5, 10):
        print(f"{megabytes} MB of empty structs: {seconds([sent(nested(int(megabytes * 1e6 / 3)))]):.1f} s")


if __name__ == "__main__":
    main()
