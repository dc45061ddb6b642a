"""Speed of `verify` on one core, in CPU time; captures are made before.

`python -m tests.conformance.speed` verifies events in memory. `python -m tests.conformance.speed --files`
writes capture files, and runs `weir verify FILE` for each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.conformance.batches import builders
from tests.conformance.captures import answered, nested, produce, produced, sent
from tests.wire.frames import request, response
from weir.conformance.capture import CaptureWriter, Run
from weir.conformance.events import Bytes
from weir.conformance.verify import Severity, verify
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse, MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weir.protocol.values import Message

FRAMES: Final = 60
"""Number of produce requests in memory."""
EXCHANGES: Final = 10_000
READ_BYTES: Final = 65536
CONNECTIONS: Final = 10
"""Number of connections in a file, each with the events that are verified in memory."""
RUNS: Final = 3
"""Number of runs of `weir verify FILE`; the median counts."""
BATCHES: Final = ((1000, 1000, 0), (10_000, 100, 0), (1000, 1000, 1))
"""Number of records, size (bytes) of each, and codec."""


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


class Capture(NamedTuple):
    """A capture to verify."""

    name: str
    events: list[Bytes]
    frames: int
    is_bulk: bool
    """True if bytes are counted, False if frames are."""

    def speed(self, repeats: int, seconds: float) -> str:
        """Say how fast these events were verified, this number of times in this time (s)."""
        if self.is_bulk:
            return f"{repeats * size(self.events) / seconds / 1e6:.0f} MB/s"
        return f"{repeats * self.frames / seconds:,.0f} frames/s"


def captures() -> Iterator[Capture]:
    """Yield the captures."""
    for records, value_bytes, codec in BATCHES:
        name = f"produce, {records} records of {value_bytes} B, codec {codec}"
        yield Capture(name, bulk(records, value_bytes, codec), 2 * FRAMES, is_bulk=True)
    topic = MetadataResponse.MetadataResponseTopic(
        name="orders", partitions=[MetadataResponse.MetadataResponsePartition() for _ in range(3)]
    )
    for name, asked, answer, version in (
        ("heartbeat", HeartbeatRequest(group_id="g", member_id="m"), HeartbeatResponse(), 4),
        ("metadata", MetadataRequest(), MetadataResponse(topics=[topic]), 9),
    ):
        yield Capture(name, exchanges(asked, answer, version), 2 * EXCHANGES, is_bulk=False)


def size(events: Sequence[Bytes]) -> int:
    """Number of bytes of the events."""
    return sum(len(event.data) for event in events)


def seconds(events: Sequence[Bytes]) -> float:
    """CPU time (s) of verifying a capture, which may have only notes."""
    before = time.process_time()
    for finding in verify(events):
        assert finding.severity is Severity.NOTE
    return time.process_time() - before


def in_memory() -> None:
    """Print the speeds of `verify`."""
    for capture in captures():
        print(f"{capture.name}: {capture.speed(1, seconds(capture.events))}")
    for megabytes in (2.5, 5, 10):
        print(f"{megabytes} MB of empty structs: {seconds([sent(nested(int(megabytes * 1e6 / 3)))]):.1f} s")


def write(file: Path, events: Sequence[Bytes], connections: int) -> None:
    """Write a capture file, in which each of several connections has the events."""
    with CaptureWriter(file, Run(1)) as writer:
        for number in range(connections):
            for event in events:
                writer.write(Bytes(number, event.time_ns, event.side, event.data))


def command_seconds(file: Path) -> float:
    """CPU time (s) of a process that runs `weir verify FILE`, the median of several. It finds only notes."""
    times = []
    for _ in range(RUNS):
        command = [sys.executable, "-m", "weir.cli", "verify", str(file)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(used.ru_utime + used.ru_stime)
    return median(times)


def in_files() -> None:
    """Print a table of the speeds of `weir verify FILE`."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "capture.weircap"
        write(file, exchanges(HeartbeatRequest(), HeartbeatResponse(), 4)[:2], 1)
        start_s = command_seconds(file)
        print(f"start of the process: {start_s:.2f} s of CPU")
        print("| capture | size | CPU | speed | without the start |\n| --- | --- | --- | --- | --- |")
        for capture in captures():
            file.unlink()
            write(file, capture.events, CONNECTIONS)
            taken_s = command_seconds(file)
            megabytes = CONNECTIONS * size(capture.events) / 1e6
            contents = (
                f"{CONNECTIONS * capture.frames:,} frames, {megabytes:,.0f} MB; "
                f"the file {file.stat().st_size / 1e6:,.0f} MB"
            )
            print(
                f"| {capture.name} | {contents} | {taken_s:.1f} s | {capture.speed(CONNECTIONS, taken_s)}"
                f" | {capture.speed(CONNECTIONS, taken_s - start_s)} |",
                flush=True,
            )
    print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def main() -> None:
    """Print the speeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.speed", description=__doc__)
    parser.add_argument("--files", action="store_true", help="write files, and run `weir verify` for each")
    if parser.parse_args().files:
        in_files()
    else:
        in_memory()


if __name__ == "__main__":
    main()
