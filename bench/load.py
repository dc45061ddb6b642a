"""A load, and what came of it: starts the load generator's processes and adds up what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from bench.entry import PLAIN, Entry
from bench.stats import percentile

SILENCE_S: Final = 20.0
"""How long a target may answer nothing at all before the run has failed."""
START_S: Final = 0.3
"""Within this time the processes have connected; they then warm up together."""


_OPENSSL_CONF: Final = Path(__file__).parent / "openssl.cnf"


class LoadError(Exception):
    """A target did not answer, or closed a connection."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to do."""

    host: str
    port: int
    connections: int
    depth: int
    warm_up_s: float
    seconds: float
    pid: int | None
    """The process whose CPU time and memory are wanted."""
    entry: Entry = PLAIN
    """What each connection does before the load begins."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one process of the generator is told, before the frames."""

    load: Load
    frames: int
    begin_s: float
    """When to begin to count, by CLOCK_MONOTONIC, which all processes share."""

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """What `json.dumps(asdict(order))` wrote."""
        values = json.loads(text)
        load = values.pop("load")
        return cls(Load(entry=Entry(**load.pop("entry")), **load), **values)


@dataclass(frozen=True, slots=True)
class Counted:
    """What one process of the generator saw, warm-up excluded."""

    seconds: float
    latencies_ns: dict[int, int]
    """A `stats.histogram`."""
    generator_cpu_s: float
    cpu_s: float | None
    rss_bytes: int | None

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """What `json.dumps(asdict(counted))` wrote, which makes strings of keys."""
        values: dict[str, Any] = json.loads(text)
        histogram = {int(bucket): count for bucket, count in values.pop("latencies_ns").items()}
        return cls(latencies_ns=histogram, **values)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a load, all processes of the generator together."""

    requests: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_s: float | None
    """Of the proxy."""
    rss_bytes: int | None
    """Of the proxy, at the end."""
    generator_cpu_s: float
    """Of the busiest process."""

    @property
    def requests_per_s(self) -> float:
        """Answered requests per second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float | None:
        """CPU time of the proxy per request in µs."""
        return None if self.cpu_s is None else self.cpu_s / self.requests * 1e6

    @property
    def generator_busy(self) -> float:
        """Share of a core that the generator's busiest process used: near 1, it was the bottleneck."""
        return self.generator_cpu_s / self.seconds


def together(parts: Sequence[Counted]) -> Measured:
    """Add up what processes saw at the same time; the first one watched the proxy. Raises LoadError."""
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
        rss_bytes=first.rss_bytes,
        generator_cpu_s=max(part.generator_cpu_s for part in parts),
    )


def generate(load: Load, frames: Sequence[bytes], processes: int = 1) -> Measured:
    """Send `frames` (all of one length) in turn, from so many processes. Raises LoadError."""
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
    """A process's part of the connections; only the first watches the proxy."""
    connections = (load.connections + index) // processes
    return replace(load, connections=connections, pid=None if index else load.pid)


def _tell(child: subprocess.Popen[bytes], order: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(order)
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has ended: its standard error tells why
    child.stdin = None  # so that communicate() does not touch it


def _result(child: subprocess.Popen[bytes], load: Load) -> bytes:
    limit_s = START_S + load.warm_up_s + load.seconds + 3 * SILENCE_S
    try:
        out, error = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise LoadError(f"the load generator did not end within {limit_s:.0f} s") from None
    if child.returncode:
        raise LoadError(error.decode(errors="replace").strip().rpartition("\n")[2])
    return out
