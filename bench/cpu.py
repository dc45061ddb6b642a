"""What another process uses: CPU time of all its threads in ns resolution, and memory.

/proc/PID/stat counts in ticks of 10 ms. Linux has a clock per process as well, which any process may read:
`clock_getcpuclockid(3)` makes its number from the process id, and so do we.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_WHOLE_PROCESS: Final = 2
"""CPUCLOCK_SCHED: user and system time of all threads, ended ones included."""
_RESIDENT: Final = "VmRSS:"


def cpu_s(pid: int) -> float:
    """CPU seconds that the process has used. Raises OSError if there is none."""
    return time.clock_gettime((~pid << 3) | _WHOLE_PROCESS)


def rss_bytes(pid: int) -> int:
    """Resident memory of the process. Raises OSError if there is none."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(_RESIDENT):
            return int(line.removeprefix(_RESIDENT).split()[0]) * 1024
    return 0  # a process that has ended and was not waited for
