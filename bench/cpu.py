"""Read the CPU time of all threads of another process, in ns resolution, and its memory.

/proc/PID/stat counts CPU time in ticks of 10 ms. Linux also has a CPU clock for each process, which any
process may read. This module computes the clock's number from the process id, as `clock_getcpuclockid(3)`
does.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_WHOLE_PROCESS: Final = 2
"""Low bits of the clock's number: CPUCLOCK_SCHED, the user and system time of all threads, also of ended
threads.
"""
_RESIDENT: Final = "VmRSS:"


def cpu_s(pid: int) -> float:
    """Return the CPU time (s) that the process has used. Raises OSError if no such process exists."""
    return time.clock_gettime((~pid << 3) | _WHOLE_PROCESS)


def rss_bytes(pid: int) -> int:
    """Return the resident memory (bytes) of the process. Raises OSError if no such process exists."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(_RESIDENT):
            return int(line.removeprefix(_RESIDENT).split()[0]) * 1024
    return 0  # a zombie, which has no memory: it has ended, but its parent has not waited for it
