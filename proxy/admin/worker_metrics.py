"""Metrics of worker processes. The system knows what they use, so the workers send nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.core import Metric

from weir.proxy.admin.exposition import WEIR
from weir.proxy.server.server import LOSSES, Server, Workers

_UTIME, _STIME, _RSS = 11, 12, 21
"""Fields of /proc/PID/stat, counted from the process's state on (proc(5))."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessUsage(NamedTuple):
    """CPU time (s), resident memory (bytes), and number of open descriptors of a process."""

    cpu_s: float
    resident_bytes: int
    open_fds: int


def families(server: Server, workers: Workers) -> Iterator[Metric]:
    yield WEIR.counter(
        "worker_restarts",
        "Worker processes that Weir has replaced.",
        {reason: server.worker_restarts[reason] for reason in LOSSES},
        "reason",
    )
    found: dict[str, ProcessUsage] = {}
    for worker in workers.records():
        with suppress(OSError, ValueError, IndexError):  # the process has ended
            found[str(worker.id)] = usage_of(worker.pid)
    yield WEIR.counter(
        "worker_cpu_seconds",
        "CPU time of each worker process.",
        {worker: usage.cpu_s for worker, usage in found.items()},
        "worker",
    )
    yield WEIR.gauge(
        "worker_resident_bytes",
        "Resident memory of each worker process.",
        {worker: usage.resident_bytes for worker, usage in found.items()},
        "worker",
    )
    yield WEIR.gauge(
        "worker_open_fds",
        "Open file descriptors of each worker process; process_max_fds is the limit.",
        {worker: usage.open_fds for worker, usage in found.items()},
        "worker",
    )


def usage_of(pid: int) -> ProcessUsage:
    """Return the usage of a process. Raises OSError if the process does not exist, and ValueError or
    IndexError if the system tells it in another format.
    """
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(") ")[2].split()
    cpu_s = (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS
    open_fds = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return ProcessUsage(cpu_s, int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE"), open_fds)
