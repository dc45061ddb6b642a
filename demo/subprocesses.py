"""Run subprocesses that end with this process, even if it is killed: they exit when their standard input
closes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import weir

EXIT_TIMEOUT_S: Final = 5.0
"""Time (s) that a subprocess gets to exit after SIGTERM, before SIGKILL."""


@contextmanager
def running_module(module: str, arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a module of Weir in a subprocess until the block ends; write its standard error to `log`.

    The subprocess has its own session: Ctrl-C reaches only this process, which then stops the subprocess.
    """
    package = str(Path(weir.__file__).parent.parent)
    search = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603  our own module, our own interpreter
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": search},
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def end_with_parent() -> None:
    """Make this process send SIGTERM to itself once its parent has ended or was killed. A subprocess calls
    this when it starts.
    """
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns only at the end of input, because the parent writes nothing
    os.kill(os.getpid(), signal.SIGTERM)
