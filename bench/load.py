"""Start the load generator's processes, and add up their measurements."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from bench.entry import PLAIN, Entry
from bench.stats import percentile

SILENCE_S: Final = 20.0
"""Time (s) without any response from a target after which the run fails."""
START_S: Final = 0.3
"""Time (s) for all load generator processes to connect; then they warm up the target together."""


_OPENSSL_CONF: Final = Path(__file__).parent / "openssl.cnf"


class LoadError(Exception):
    """Raised if a target closes a connection or stops answering, or if the load generator fails."""


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of one measurement: the target's address, the connections and requests in flight, the
    durations.
    """

    host: str
    port: int
    connections: int
    depth: int
    warm_up_s: float
    seconds: float
    pid: int | None
    """Process id of the proxy whose CPU time and memory are measured; None to measure neither."""
    entry: Entry = PLAIN
    """Steps of each connection before the load begins: TLS handshake and authentication."""
    reconnects: bool = False
    """True to send each request on a new connection."""


@dataclass(frozen=True, slots=True)
class Order:
    """The parameters that one load generator process reads from its standard input, before the frames."""

    load: Load
    frames: int
    begin_s: float
    """Time (s, CLOCK_MONOTONIC, which all processes share) at which the warm-up ends and the measurement
    begins.
    """

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the order that was encoded as `json.dumps(asdict(order))`."""
        values = json.loads(text)
        load = values.pop("load")
        return cls(Load(entry=Entry(**load.pop("entry")), **load), **values)


@dataclass(frozen=True, slots=True)
class Counted:
    """Measurements of one load generator process, without the warm-up."""

    seconds: float
    latencies_ns: dict[int, int]
    """Histogram of latencies (ns), as from `stats.histogram`: number of requests by bucket."""
    generator_cpu_s: float
    cpu_s: float | None
    busiest_s: float | None
    rss_bytes: int | None

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the result that was encoded as `json.dumps(asdict(counted))`; JSON turns the histogram's
        keys into strings.
        """
        values: dict[str, Any] = json.loads(text)
        histogram = {int(bucket): count for bucket, count in values.pop("latencies_ns").items()}
        return cls(latencies_ns=histogram, **values)


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one load at one target, summed over all load generator processes."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_s: float | None
    """CPU time (s) of all processes of the proxy; None if not measured."""
    busiest_s: float | None
    """CPU time (s) of the process of the proxy that used most; None if not measured."""
    rss_bytes: int | None
    """Memory (bytes) of the proxy at the end of the measurement; None if not measured."""
    generator_cpu_s: float
    """CPU time (s) of the load generator process that used most."""

    @property
    def requests_per_s(self) -> float:
        """Number of answered requests per second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """CPU time (µs) of the proxy per request; None if not measured."""
        return None if self.cpu_s is None else self.cpu_s / self.requests * 1e6

    @property
    def generator_busy(self) -> float:
        """Share of a core that the busiest load generator process used; near 1, the load generator limited
        the rate.
        """
        return self.generator_cpu_s / self.seconds


def together(parts: Sequence[Counted]) -> Measured:
    """Add up the measurements of processes that ran at the same time. The first process has measured the
    proxy. Raises LoadError if no request was answered.
    """
    latencies: Counter[int] = Counter()
    for part in parts:
        latencies.update(part.latencies_ns)
    if not latencies:
        raise LoadError("not one answer while measuring")
    first = parts[0]
    return Measured(
        requests=latencies.total(),
        seconds=first.seconds,
        p50_us=percentile(latencies, 50) / 1000,
        p99_us=percentile(latencies, 99) / 1000,
        cpu_s=first.cpu_s,
        busiest_s=first.busiest_s,
        rss_bytes=first.rss_bytes,
        generator_cpu_s=max(part.generator_cpu_s for part in parts),
    )


def generate(load: Load, frames: Sequence[bytes], processes: int = 1) -> Measured:
    """Send `frames`, for `bench.generator` all of equal length, in turn from `processes` load generator
    processes; return the measurements. Raises LoadError.
    """
    begin_s = time.monotonic() + START_S + load.warm_up_s
    content = b"".join(frames)
    children = [_start() for _ in range(processes)]
    try:
        for index, child in enumerate(children):
            order = Order(_share(load, index, processes), len(frames), begin_s)
            _tell(child, json.dumps(asdict(order)).encode() + b"\n" + content)
        return together([Counted.parse(_result(child, load)) for child in children])
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _start() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "bench.generator"],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=os.environ | {"OPENSSL_CONF": str(_OPENSSL_CONF)},
    )


def _share(load: Load, index: int, processes: int) -> Load:
    """Return the load of one process: its part of the connections. Only the first one measures the proxy."""
    connections = (load.connections + index) // processes
    return replace(load, connections=connections, pid=None if index else load.pid)


def _tell(child: subprocess.Popen[bytes], order: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(order)
        child.stdin.close()
    except BrokenPipeError:
        pass  # the process has ended; `_result` reports its standard error
    child.stdin = None  # so that communicate() does not use the closed pipe


def _result(child: subprocess.Popen[bytes], load: Load) -> bytes:
    limit_s = START_S + load.warm_up_s + load.seconds + 3 * SILENCE_S
    try:
        out, error = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise LoadError(f"the load generator did not end within {limit_s:.0f} s") from None
    if child.returncode:
        raise LoadError(error.decode(errors="replace").strip().rpartition("\n")[2])
    return out


def serve(measure: Callable[[Order, bytes], Counted]) -> None:
    """Be a load generator process: read one order and its frames from standard input, measure, and write one
    result as JSON to standard output.
    """
    order, _, content = sys.stdin.buffer.read().partition(b"\n")
    gc.disable()
    try:
        counted = measure(Order.parse(order), content)
    except (OSError, LoadError) as error:
        sys.exit(str(error))
    print(json.dumps(asdict(counted)))
