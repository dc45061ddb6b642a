"""Define a target of the benchmark: a process in front of the broker that can be started and measured."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.entry import PLAIN, Entry
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST

START_S: Final = 90.0
_POLL_S: Final = 0.05
_LOG_TAIL: Final = 1000


class TargetError(Exception):
    """Raised if a target does not start."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that a target needs to start: the broker's ports, and the object that runs subprocesses."""

    broker_port: int
    processes: Processes
    """Starts the target's processes, and ends them with the benchmark, also if the benchmark fails."""
    sasl_port: int = 0
    """Port of the broker's SASL listener; 0 if the broker has none."""

    @property
    def directory(self) -> Path:
        """Directory for configuration files; deleted at the end."""
        return self.processes.data


@dataclass(frozen=True, slots=True)
class Running:
    """A started target that accepts connections."""

    port: int
    pid: int | None
    """Process id of the proxy, whose CPU time and memory are measured; None for the broker itself."""
    entry: Entry = PLAIN
    """Steps of a client's connection before the first request: TLS handshake and authentication."""


@dataclass(frozen=True, slots=True)
class Target:
    """A proxy (or the broker itself) to measure: one column of the tables."""

    name: str
    """Name of the target on the command line and in JSON."""
    title: str
    start: Callable[[Surroundings], Running]
    """Function that starts the target. Raises TargetError."""
    missing: Callable[[], str | None] = lambda: None
    """Function that returns the reason why the target cannot be measured on this machine; None if it can."""
    warm_up_s: float = 1.0
    """Warm-up (s) with each load before the first measurement; a JVM compiles in this time."""
    version: Callable[[], str | None] = lambda: None
    """Function that returns the version of the installed proxy; None if the benchmark does not report it."""


def start_process(
    surroundings: Surroundings, name: str, command: Sequence[str], port: int, entry: Entry = PLAIN
) -> Running:
    """Start a process, and return once it accepts connections on `port`. Raises TargetError."""
    processes = surroundings.processes
    processes.start(name, command)
    deadline_s = time.monotonic() + START_S
    while not _accepts(port):
        if not processes.running(name):
            raise TargetError(f"{name} ended at once: {_tail(processes, name)}")
        if time.monotonic() > deadline_s:
            raise TargetError(f"{name} accepts no connection after {START_S:.0f} s: {_tail(processes, name)}")
        time.sleep(_POLL_S)
    return Running(port, processes.pid(name), entry)


def output_of(*command: str) -> str | None:
    """Return the first line that a command prints; None if the command fails or prints nothing."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    return None if done.returncode else next(iter(done.stdout.splitlines()), None)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), 1.0):
        return True
    return False


def _tail(processes: Processes, name: str) -> str:
    return processes.log(name).read_text(errors="replace")[-_LOG_TAIL:].strip()
