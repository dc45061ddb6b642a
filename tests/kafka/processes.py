"""Child processes in one temporary directory: both are gone at the end, also if this process is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_WATCHDOG = Path(__file__).with_name("watchdog.py")


class Processes:
    """Named children, each in a process group of its own, with `data/` and `logs/` below one `directory`."""

    def __init__(self, prefix: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))
        self.data, self.logs = self.directory / "data", self.directory / "logs"
        self.data.mkdir()
        self.logs.mkdir()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WATCHDOG), str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )

    def start(self, name: str, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> None:
        """Start a child with these descriptors, its output appended to `logs/<name>.log`. Raises ValueError
        if the name runs.
        """
        if self.running(name):
            raise ValueError(f"{name} is running already")
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                command,
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self._children[name] = child
        self._tell(f"+{child.pid}")

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def pid(self, name: str) -> int:
        """Process id of a running child. Raises KeyError."""
        return self._children[name].pid

    def running(self, name: str) -> bool:
        return self.exit_status(name) is None and name in self._children

    def exit_status(self, name: str) -> int | None:
        """The child's exit status (negative: a signal), None while it runs."""
        child = self._children.get(name)
        return None if child is None else child.poll()

    def wait(self, name: str, timeout_s: float) -> int:
        """Wait for a child to end by itself; return its exit status. Raises subprocess.TimeoutExpired."""
        status = self._children[name].wait(timeout_s)
        self._forget(name)
        return status

    def terminate(self, name: str, timeout_s: float) -> None:
        """Ask a child to end (SIGTERM); kill it after `timeout_s`."""
        self._children[name].terminate()
        with suppress(subprocess.TimeoutExpired):
            self._children[name].wait(timeout_s)
        self.kill(name)

    def kill(self, name: str) -> None:
        """Kill a child and whatever it started (SIGKILL); nothing happens if it ended already."""
        child = self._children.get(name)
        if child is None:
            return
        with suppress(
            ProcessLookupError, PermissionError
        ):  # the latter is macOS's word for a group of zombies
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self._forget(name)

    def close(self, *, keep_logs: bool = False) -> None:
        """Kill every child, delete the directory (but for `logs/` if those are kept). May be called again."""
        for name in list(self._children):
            self.kill(name)
        shutil.rmtree(self.data, ignore_errors=True)
        if not keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._watchdog.stdin is not None and not self._watchdog.stdin.closed:
            self._watchdog.stdin.close()
            self._watchdog.wait()

    def _forget(self, name: str) -> None:
        self._tell(f"-{self._children.pop(name).pid}")

    def _tell(self, line: str) -> None:
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.write(f"{line}\n".encode())
            self._watchdog.stdin.flush()
