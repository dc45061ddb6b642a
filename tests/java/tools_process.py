"""Kafka's command-line tools, unmodified, since 1.0: one Java process per release and test process.

A start takes seconds. py4j calls the main method of the tool's class with the arguments that a shell would
give it, and sees what it prints and with which status it wants to end.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from tests.clients.model import ClientError
from tests.java.worker import command, environment, start_of_java
from tests.kafka.cluster import LOG4J
from tests.kafka.jars import version_tuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_SILENT = f"-Dlog4j.configuration=file:{Path(__file__).with_name('silent.properties')}"
_SILENT_FROM_4_0 = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
"""No logs of the client's between the lines of the tool."""
_START_S = 120.0
_FIRST = (1, 0)
"""Older tools end the Java process, not by a procedure that can be replaced."""


class Said(NamedTuple):
    status: int
    out: str
    err: str


def can_run(release: str) -> bool:
    return version_tuple(release) >= _FIRST


def run_tool(
    release: str, main_class: str, arguments: Sequence[str], timeout_s: float, *, silent: bool = False
) -> Said:
    """Call a tool as a shell would; `silent` leaves out what it logs. Raises ClientError, also if it hangs.

    Thread-safe: calls come one after another.
    """
    key = release, silent
    with _LOCK:
        if key not in _RUNNING:
            _RUNNING[key] = ToolsProcess(release, silent=silent)
        try:
            return _RUNNING[key].call(main_class, arguments, timeout_s)
        except BaseException:  # it may be in the middle of a call
            _RUNNING.pop(key).close()
            raise


class ToolsProcess:
    """The tools of a release, which must be one that the tests have jars of. Not thread-safe.

    It ends with its owner, however that ends: its stdin does.
    """

    def __init__(self, release: str, *, silent: bool = False) -> None:
        self._release = release
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        options = [f"-Dlog4j.configuration=file:{LOG4J}"]
        if silent:
            options = [_SILENT_FROM_4_0 if version_tuple(release) >= (4, 0) else _SILENT]
        start = start_of_java(release, options)
        self._child = subprocess.Popen(
            command("tools_worker"),
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,
        )
        try:
            self._send(start)
            java = self._answer("the start of Java", time.monotonic() + _START_S)
        except BaseException as error:
            complaints = self._complained()
            self.close()
            if not isinstance(error, OSError | EOFError):
                raise
            raise ClientError(f"the tools of {release} did not start:\n{complaints}") from error
        self.pids = (self._child.pid, int(java))
        """Of the worker, which is also their process group's id, and of Java."""

    def call(self, main_class: str, arguments: Sequence[str], timeout_s: float) -> Said:
        """Call a tool. Raises ClientError; then the process is of no use any more."""
        try:
            self._send([main_class, list(arguments)])
            return Said(**json.loads(self._answer(main_class, time.monotonic() + timeout_s)))
        except (OSError, EOFError) as error:
            raise ClientError(f"{main_class} of {self._release} failed:\n{self._complained()}") from error

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        for file in (self._child.stdin, self._child.stdout, self._complaints):
            if file is not None:
                with suppress(OSError):  # what was not sent is of no use
                    file.close()

    def _send(self, value: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(value).encode() + b"\n")
        self._child.stdin.flush()

    def _answer(self, what: str, deadline_s: float) -> bytes:
        assert self._child.stdout is not None
        answer, pipe = bytearray(), self._child.stdout.fileno()
        while not answer.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise ClientError(f"{what} of {self._release} hung: its time is over")
            part = os.read(pipe, 1 << 16)
            if not part:
                raise EOFError
            answer += part
        return bytes(answer)

    def _complained(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read().decode(errors="replace")[-3000:]


_LOCK = threading.Lock()
_RUNNING: dict[tuple[str, bool], ToolsProcess] = {}


@atexit.register
def _close_all() -> None:
    while _RUNNING:
        _RUNNING.popitem()[1].close()
