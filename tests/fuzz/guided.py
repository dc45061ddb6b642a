"""The loop: change an input, run it, and keep it if it has reached a new branch of our modules."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.mutate import changed
from tests.fuzz.target import Target

OURS: Final = ("/protocol/", "/quotas/", "/proxy/", "/conformance/", "<locate ", "<stream ")
"""Parts of the names of our files, and the beginnings of names of scanners compiled at run time."""
RECENT: Final = 64
"""Half of the inputs are made from this number of inputs that were kept last."""


class Branches:
    """Records the pairs of lines that follow each other, while `settrace` is in force."""

    def __init__(self) -> None:
        self.reached: set[int] = set()
        self._numbers: dict[CodeType, int] = {}
        """Number of each code object, shifted to make room for a line; 0 for those that are not ours."""
        self._last = 0

    def run(self, call: Callable[[], None]) -> None:
        """Call, and record. Raises the errors of `call`."""
        self._last = 0
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        number = self._numbers.get(code)
        if number is None:
            name = code.co_filename
            ours = any(part in name for part in OURS) and "/tests/" not in name
            number = self._numbers[code] = (len(self._numbers) + 1) << 16 if ours else 0
        return self._line if number else None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            here = self._numbers[frame.f_code] | frame.f_lineno
            self.reached.add(self._last << 40 | here)
            self._last = here
        return self._line


@dataclass(slots=True)
class Finding:
    data: bytes
    error: str


@dataclass(slots=True)
class Search:
    """A run over one target. Equal seeds give equal inputs."""

    target: Target
    seed: int
    inputs: int = 0
    """Number of inputs that were run."""
    kept: list[bytes] = field(default_factory=list)
    """Seeds, and inputs that have reached new branches."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """The first input for each place where an undocumented error was raised."""
    branches: Branches = field(default_factory=Branches)

    def begin(self, more: Sequence[bytes] = ()) -> None:
        """Run the seeds and `more` inputs, which are all kept. The first run is not recorded: it compiles
        scanners.
        """
        self.kept = [*self.target.seeds(), *more]
        for data in self.kept:
            self._run_untraced(data)
        for data in self.kept:
            self._is_new(data)

    def go_on(self, may_go_on: Callable[[], bool]) -> None:
        """Run changed inputs as long as `may_go_on` says, which is asked before each."""
        source = random.Random(f"{self.target.name} {self.seed}")
        while may_go_on():
            recent = source.randrange(2)
            data = changed(self.kept[-RECENT:] if recent else self.kept, source)
            if self._is_new(data):
                self.kept.append(data)

    def run_blindly(self, count: int, more: Sequence[bytes] = ()) -> None:
        """Run the seeds, `more` inputs, and this number of inputs changed from them.

        Branches are not recorded: that would take five times as long.
        """
        self.kept = [*self.target.seeds(), *more]
        source = random.Random(f"{self.target.name} {self.seed}")
        for data in self.kept:
            self._run_untraced(data)
        for _ in range(count):
            self._run_untraced(changed(self.kept, source))

    def reach(self, data: bytes) -> frozenset[int]:
        """Return the branches that an input reaches; none for a finding, which has a place of its own."""
        before, self.branches.reached = self.branches.reached, set()
        try:
            self.branches.run(lambda: self.target.run(data))
            return frozenset(self.branches.reached)
        except Exception:  # noqa: BLE001  # a finding, whatever the error is
            return frozenset()
        finally:
            self.branches.reached = before

    def _is_new(self, data: bytes) -> bool:
        self.inputs += 1
        before = len(self.branches.reached)
        try:
            self.branches.run(lambda: self.target.run(data))
        except Exception as error:  # noqa: BLE001  # a finding, whatever the error is
            self._found(data, error)
        return len(self.branches.reached) > before

    def _run_untraced(self, data: bytes) -> None:
        try:
            self.target.run(data)
        except Exception as error:  # noqa: BLE001  # a finding, whatever the error is
            self._found(data, error)

    def _found(self, data: bytes, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        key = f"{type(error).__name__} at {place.filename}:{place.lineno}"
        self.findings.setdefault(key, Finding(data, "".join(traceback.format_exception(error))))


def search(target: Target, seed: int, count: int, more: Sequence[bytes] = ()) -> Search:
    """Run the seeds, `more` inputs, and this number of changed inputs."""
    found = Search(target, seed)
    found.begin(more)
    last = found.inputs + count
    found.go_on(lambda: found.inputs < last)
    return found
