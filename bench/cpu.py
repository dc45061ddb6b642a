"""CPU time of another process, all threads, in nanoseconds' resolution.

/proc/PID/stat counts in ticks of 10 ms. Linux has a clock per process as well, which any process may read:
`clock_getcpuclockid(3)` makes its number from the process id, and so do we.
"""

from __future__ import annotations

import time
from typing import Final

_WHOLE_PROCESS: Final = 2
"""CPUCLOCK_SCHED: user and system time of all threads, ended ones included."""


def cpu_s(pid: int) -> float:
    """CPU seconds that the process has used. Raises OSError if there is none."""
    return time.clock_gettime((~pid << 3) | _WHOLE_PROCESS)
