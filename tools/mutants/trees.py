"""Copies of the tree, in which mutants are tested: the checkout is never changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UNCOPIED: Final = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
PYTEST: Final = (
    *("-m", "pytest", "-p", "tools.mutants.plugin", "-p", "no:cacheprovider", "-q", "--no-header", "--tb=no"),
    *("-m", "not broker and not oracle and not spark"),
)
GREEN, RED, NO_TESTS = 0, 1, 5


class Outcome(Enum):
    """The outcome of testing a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    """The tests exceeded their time, most likely because the mutant does not end; counts as killed."""
    SURVIVED = "survived"
    UNTESTED = "survived (no test runs it)"

    @property
    def lives(self) -> bool:
        """True if no test has noticed the mutation."""
        return self in (Outcome.SURVIVED, Outcome.UNTESTED)


class TestsError(Exception):
    """Raised if the tests cannot be run, or all of them fail without any mutation."""


@dataclass(slots=True)
class Tree:
    """One copy of the tree, used by one thread at a time."""

    root: Path
    _changes: int = field(default=0, init=False)

    @classmethod
    def copy(cls, original: Path, root: Path) -> Tree:
        """Copy the files that tests may need from `original` to `root`."""
        shutil.copytree(original, root, symlinks=True, ignore=UNCOPIED)
        return cls(root)

    def run(self, arguments: Sequence[str], timeout_s: float | None = None) -> tuple[int, str]:
        """Run Python in this tree; return its exit status and the end of its output. Raises
        TimeoutExpired.
        """
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        command = [sys.executable, *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(  # noqa: S603 - our own command
            command,
            cwd=self.root,
            env=environment,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # and the tests' own subprocesses
        return process.returncode, output[-4000:]

    def judge(self, path: str, changed: str, tests: Sequence[str], timeout_s: float) -> Outcome:
        """Run tests with a module changed, up to the first failure; restore the module. Return the outcome.
        Raises TestsError.
        """
        if not tests:
            return Outcome.UNTESTED
        source = (self.root / path).read_text("utf-8")
        self._write(path, changed)
        try:
            status, output = self.run([*PYTEST, "-x", *tests], timeout_s)
        except subprocess.TimeoutExpired:
            return Outcome.TIMED_OUT
        finally:
            self._write(path, source)
        if status == NO_TESTS:
            raise TestsError(output)
        return Outcome.SURVIVED if status == GREEN else Outcome.KILLED

    def _write(self, path: str, source: str) -> None:
        """Write a module with a unique modification time, from which Python recognizes that its bytecode
        cache is stale.
        """
        file = self.root / path
        file.write_text(source, "utf-8")
        self._changes += 1
        os.utime(file, (self._changes, self._changes))
