"""Read the CPU time of all threads of another process and its child processes, in ns resolution, and their
memory.

/proc/PID/stat counts CPU time in ticks of 10 ms. Linux also has a CPU clock for each process, which any
process may read. This module computes the clock's number from the process id, as `clock_getcpuclockid(3)`
does.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_WHOLE_PROCESS: Final = 2
"""Low bits of the clock's number: CPUCLOCK_SCHED, the user and system time of all threads, also of ended
threads.
"""
_RESIDENT: Final = "VmRSS:"


def cpu_s(pid: int) -> float:
    """Return the CPU time (s) that the process and its child processes have used. A child process that has
    ended does not count. Raises OSError if no such process exists.
    """
    return sum(cpu_s_by_process(pid).values())


def cpu_s_by_process(pid: int) -> dict[int, float]:
    """Return the CPU time (s) of the process, first, and of each of its child processes, by process id.
    Raises OSError if no such process exists.
    """
    return {each: time.clock_gettime((~each << 3) | _WHOLE_PROCESS) for each in (pid, *_children(pid))}


def rss_bytes(pid: int) -> int:
    """Return the resident memory (bytes) of the process and its child processes; memory that they share
    counts in each. Raises OSError if no such process exists.
    """
    return sum(map(_rss_bytes, (pid, *_children(pid))))


def _children(pid: int) -> list[int]:
    """Return the child processes, such as Weir's workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            _state, parent, *_rest = (process / "stat").read_text().rpartition(")")[2].split()
            if int(parent) == pid:
                found.append(int(process.name))
    return found


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(_RESIDENT):
            return int(line.removeprefix(_RESIDENT).split()[0]) * 1024
    return 0  # a zombie, which has no memory: it has ended, but its parent has not waited for it
