"""`weir run` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HANG_S = 150
"""Time (s) after which Weir is killed, so that the test ends. A busy machine starts it slowly."""


class Weir:
    """A running `weir run`, and the lines it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []

    def logged(self, words: str) -> dict[str, object]:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self.lines.append(json.loads(text))
            if words in str(self.lines[-1]["event"]):
                return self.lines[-1]
        raise AssertionError(f"{words!r} was not logged: {self.lines}")


@contextmanager
def running(*arguments: str) -> Iterator[Weir]:
    command = [
        sys.executable,
        "-c",
        "from weir.cli.main import main; main()",
        "run",
    ]
    process = subprocess.Popen(
        [*command, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    )
    patience = threading.Timer(HANG_S, process.kill)
    patience.start()
    try:
        yield Weir(process)
    finally:
        patience.cancel()
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
