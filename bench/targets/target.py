"""What a target is: how to start a process that stands in front of the broker."""

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

START_S: Final = 30.0
_POLL_S: Final = 0.05
_LOG_TAIL: Final = 1000


class TargetError(Exception):
    """A target did not start."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a target is started in."""

    broker_port: int
    processes: Processes
    """Start yours with these: they end with the benchmark, however that ends."""
    sasl_port: int = 0
    """The broker's for those who authenticate; 0 where nobody does."""

    @property
    def directory(self) -> Path:
        """For configuration files; deleted at the end."""
        return self.processes.data


@dataclass(frozen=True, slots=True)
class Running:
    """A target that accepts connections."""

    port: int
    pid: int | None
    """Whose CPU time counts; None for the broker itself."""
    entry: Entry = PLAIN
    """What its clients begin with."""


@dataclass(frozen=True, slots=True)
class Target:
    """A column of the tables."""

    name: str
    """On the command line and in JSON."""
    title: str
    start: Callable[[Surroundings], Running]
    """Raises TargetError."""
    missing: Callable[[], str | None] = lambda: None
    """Why it cannot be measured here, None if it can."""
    warm_up_s: float = 1.0
    """How long each load runs through it before anything is measured; a JVM compiles meanwhile."""
    version: Callable[[], str | None] = lambda: None
    """Of the proxy that is installed here."""


def start_process(
    surroundings: Surroundings, name: str, command: Sequence[str], port: int, entry: Entry = PLAIN
) -> Running:
    """Start a process and return once it accepts connections. Raises TargetError."""
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
    """The first line that a command prints, None if there is none."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    return next(iter(done.stdout.splitlines()), None)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), 1.0):
        return True
    return False


def _tail(processes: Processes, name: str) -> str:
    return processes.log(name).read_text(errors="replace")[-_LOG_TAIL:].strip()
