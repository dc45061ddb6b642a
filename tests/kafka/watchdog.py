"""Ends a cluster whose owner died: `python watchdog.py DIRECTORY`, run by `processes.py`, stdlib only.

The owner writes `+PID` for each process group it starts and `-PID` for each it has reaped. When the pipe
ends, however the owner ended, the groups that are left are killed and the directory is deleted.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress


def watch(directory: str) -> None:
    """Read the owner's lines until it is gone, then clean up."""
    alive: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("+"):
            alive.add(pid)
        else:
            alive.discard(pid)
    for pid in alive:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    if alive:  # otherwise the owner has decided what stays
        delete(directory)


def delete(directory: str) -> None:
    """Delete it all; a process that was killed a moment ago may still add a file, so look again."""
    for _ in range(200):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory):  # noqa: PTH110 (pathlib takes longer to import than all else)
            return
        time.sleep(0.05)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.argv[1])
