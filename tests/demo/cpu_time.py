"""CPU time of a command and its descendants, and of everything else on this machine meanwhile, from /proc."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.demo.process_table import stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LOOK_S: Final = 0.2
"""Time (s) between two looks at the processes; the CPU time of a process after the last look is not seen."""
_IDLE: Final = (3, 4)
"""Index of the times in /proc/stat in which a processor does nothing: idle, and waiting for disks."""
_FIELDS: Final = 8
"""Number of times without those of guests, which /proc/stat counts twice."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    """A command that has ended."""

    exit_code: int
    output: str
    """Standard output and standard error."""
    wall_s: float
    cpu_s: float
    """CPU time (s) of the command and its descendants."""
    others_s: float
    """CPU time (s) of all other processes, and CPU time that the machine did not get from its host."""


def measured(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Measured:
    """Run a command in a session of its own, to its end. Raises TimeoutError."""
    began_s, busy_s, own = time.monotonic(), _busy_s(), dict[str, float]()
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=Path(__file__).resolve().parents[2],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        while process.poll() is None:
            own |= _of_session(process.pid)
            time.sleep(_LOOK_S)
            if time.monotonic() - began_s > timeout_s:
                process.terminate()
                raise TimeoutError(f"{command} has not ended after {timeout_s} s")
        wall_s, cpu_s = time.monotonic() - began_s, sum(own.values())
        output.seek(0)
        others_s = max(_busy_s() - busy_s - cpu_s, 0.0)
        return Measured(process.returncode, output.read(), wall_s, cpu_s, others_s)


def _of_session(session: int) -> dict[str, float]:
    """Return the CPU time (s) of each process of the session so far, by pid."""
    return {
        pid: (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        for pid, _name, *fields in stats()
        if fields[3] == str(session)
    }


def _busy_s() -> float:
    times = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:][:_FIELDS]]
    return (sum(times) - sum(times[index] for index in _IDLE)) / _TICKS_PER_S
