"""Speed of connections through `weir capture` and `weir run`, in turns on the same machine:
`python -m tests.conformance.capture.speed`. Prints the ratio of the throughputs, and the times of pings.

A stub broker is a process of its own; this process is the client. Without a free core for the process that
writes, the load of the machine decides, so the command prints that too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.conformance.captures import produce, produced
from tests.kafka.ports import free_range
from tests.wire.frames import request, response
from weir.conformance.capture import read
from weir.conformance.events import Bytes, Dropped
from weir.protocol import ApiKey
from weir.protocol.framing import LENGTH_BYTES, REQUEST_HEAD, REQUEST_HEAD_BYTES
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

HOST: Final = "127.0.0.1"
BUFFER_BYTES: Final = 1 << 20
RECORDS_BYTES: Final = 1 << 20
PING: Final = request(HeartbeatRequest(group_id="g", member_id="m"), 4, 1)
PONG: Final = response(HeartbeatResponse(), 4, 1)
PRODUCED: Final = produced(9, 1)
READY_S: Final = 20.0
SETTLED_S: Final = 0.3
"""Time (s) without a change of the file after which its queue is empty."""


def bulk_request() -> bytes:
    """A produce request of about 1 MB; half of its bytes compress well."""
    return produce(random.Random(1).randbytes(RECORDS_BYTES // 2) + bytes(RECORDS_BYTES // 2), 9, 1)


def serve(ready: Connection) -> None:
    """Answer heartbeats and produce requests on one connection after the other; close the others."""
    with socket.create_server((HOST, 0)) as listening:
        ready.send(listening.getsockname()[1])
        while True:
            with listening.accept()[0] as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _answer(sock, memoryview(bytearray(BUFFER_BYTES)))


def _answer(sock: socket.socket, buffer: memoryview) -> None:
    while head := sock.recv(REQUEST_HEAD_BYTES, socket.MSG_WAITALL):
        length, api_key, _version, _correlation_id = REQUEST_HEAD.unpack(head)
        if api_key not in {ApiKey.PRODUCE, ApiKey.HEARTBEAT}:
            return
        left = LENGTH_BYTES + length - len(head)
        while left:
            left -= sock.recv_into(buffer, min(left, len(buffer)))
        sock.sendall(PRODUCED if api_key == ApiKey.PRODUCE else PONG)


class Weir:
    """A running `weir run` or `weir capture` on one core or more."""

    def __init__(self, upstream: str, log: Path, *command: str) -> None:
        self.port = free_range(3)
        ports = f"{self.port + 1}-{self.port + 2}"
        addresses = ["--upstream", upstream, "--listen", f"{HOST}:{self.port}", "--broker-ports", ports]
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "weir.cli", *command, *addresses], stdout=out, stderr=out
            )
        until = time.monotonic() + READY_S
        while b"listening" not in log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(log.read_text())
            time.sleep(0.05)

    def cpu_us(self) -> float:
        """CPU time (µs) of its threads, without that of the process that writes."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000

    def stop(self) -> None:
        """Stop it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection."""
    with socket.create_connection((HOST, port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock


def bulk_mb_per_s(port: int, requests: int, frame: bytes) -> float:
    """Throughput (MB/s) of produce requests, one after the other."""
    with connected(port) as sock:
        started = time.perf_counter()
        for _ in range(requests):
            sock.sendall(frame)
            sock.recv(len(PRODUCED), socket.MSG_WAITALL)
        return requests * len(frame) / 1e6 / (time.perf_counter() - started)


def ping_us(port: int, count: int) -> tuple[float, float]:
    """Median and 99th percentile (µs) of the time of a heartbeat."""
    times = []
    with connected(port) as sock:
        for _ in range(count):
            started = time.perf_counter()
            sock.sendall(PING)
            sock.recv(len(PONG), socket.MSG_WAITALL)
            times.append((time.perf_counter() - started) * 1e6)
    times.sort()
    return times[count // 2], times[count * 99 // 100]


def settle(out: Path) -> None:
    """Wait until the capture's writer has written the bytes of the previous round."""
    size, seen_at = -1, time.monotonic()
    while time.monotonic() < seen_at + SETTLED_S:
        if size != out.stat().st_size:
            size, seen_at = out.stat().st_size, time.monotonic()
        time.sleep(0.05)


class Figures(NamedTuple):
    """The figures of one Weir in one round."""

    mb_per_s: float
    cpu_us_per_mb: float
    p50_us: float
    p99_us: float

    def __str__(self) -> str:
        return (
            f"{self.mb_per_s:.0f} MB/s with {self.cpu_us_per_mb:.0f} µs of CPU per MB, "
            f"ping p50 {self.p50_us:.0f}, p99 {self.p99_us:.0f} µs"
        )


def figures(weir: Weir, requests: int, pings: int, frame: bytes) -> Figures:
    """Measure one Weir."""
    before = weir.cpu_us()
    mb_per_s = bulk_mb_per_s(weir.port, requests, frame)
    cpu_us_per_mb = (weir.cpu_us() - before) / (requests * len(frame) / 1e6)
    return Figures(mb_per_s, cpu_us_per_mb, *ping_us(weir.port, pings))


def measure(upstream: str, directory: Path, rounds: int, requests: int, pings: int) -> None:
    """Print a line per round, the medians, and what the capture lacks."""
    out, frame = directory / "c", bulk_request()
    weirs = {
        "run": Weir(upstream, directory / "run", "run"),
        "capture": Weir(upstream, directory / "capture", "capture", "--out", str(out)),
    }
    found: dict[str, list[Figures]] = {name: [] for name in weirs}
    for number in range(rounds + 1):
        for name, weir in weirs.items() if number % 2 else reversed(weirs.items()):
            settle(out)
            measured = figures(weir, requests, pings, frame)
            print(f"{name:8}{measured}, load {os.getloadavg()[0]:.1f}", flush=True)
            if number:  # the first round warms up
                found[name].append(measured)
    medians = {name: Figures(*map(median, zip(*rows, strict=True))) for name, rows in found.items()}
    for name, weir in weirs.items():
        print(f"{name}, medians: {medians[name]}")
        weir.stop()
    print(f"throughput with / without capture: {medians['capture'].mb_per_s / medians['run'].mb_per_s:.2f}")
    print(f"p99 with - without capture: {medians['capture'].p99_us - medians['run'].p99_us:.0f} µs")
    events = list(read(out))
    kept = sum(len(event.data) for event in events if isinstance(event, Bytes))
    dropped = sum(event.count for event in events if isinstance(event, Dropped))
    print(f"in the file: {kept / 1e6:.0f} MB, {dropped / 1e6:.0f} MB dropped")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=400, help="produce requests of 1 MB per round")
    parser.add_argument("--pings", type=int, default=2000, help="heartbeats per round")
    options = parser.parse_args()
    ready, sender = multiprocessing.Pipe(duplex=False)
    broker = multiprocessing.Process(target=serve, args=(sender,), daemon=True)
    broker.start()
    with tempfile.TemporaryDirectory() as directory:
        measure(f"{HOST}:{ready.recv()}", Path(directory), options.rounds, options.requests, options.pings)


if __name__ == "__main__":
    main()
