"""Child processes that end with us, however we end: by their pid, or because their standard input closes."""

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

EXIT_TIMEOUT_S: Final = 5.0
"""How long a child may take to end by itself."""


@contextmanager
def running_module(module: str, arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a module of ours in a process of its own until the block ends; its standard error goes to `log`.

    It has a session of its own: Ctrl-C is for us, and we end it.
    """
    rooms = str(Path(__file__).resolve().parent.parent)
    search = os.pathsep.join(filter(None, (rooms, os.environ.get("PYTHONPATH", ""))))
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
    """In a child: ask this process to end once the parent has gone, also if it was killed."""
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    os.read(sys.stdin.fileno(), 1)  # returns at the end of input only: nobody writes
    os.kill(os.getpid(), signal.SIGTERM)
