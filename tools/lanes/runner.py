"""Runs lanes as processes and measures them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final, Self, TypeAlias
from xml.etree import ElementTree as ET

from tools.lanes.lane import COMPILED, COMPILED_TESTS, ROOT, Extent, Lane, check_commands
from tools.lanes.results import CHOSEN, REPORTS, Case, Outcome, read_cases

Say: TypeAlias = Callable[[str], None]
TESTS_FAILED: Final = 1
"""Exit code of pytest if it ran all tests, and some failed."""
NOTHING_COLLECTED: Final = 5
"""Exit code of pytest if it selected no test, as may happen for a part of a small lane."""


def run_checks(say: Say) -> Outcome:
    """Run the static checks, also those after one that fails."""
    began = time.monotonic()
    failed = [command for command in check_commands() if not _succeeds(command, say)]
    note = ", ".join(f"{_name(command)} failed" for command in failed)
    return Outcome("checks", (), time.monotonic() - began, not failed, note)


def run_lane(
    lane: Lane, extent: Extent, options: Sequence[str], say: Say, output: IO[bytes] | None = None
) -> Outcome:
    """Run this extent of a lane; `options` are pytest's for this run, and `output` is the file to which
    pytest prints. A lane without tests fails, unless `options` are given, which may exclude all tests.
    """
    report = lane.report(extent)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *lane.pytest(extent)]
    name = f"{lane.name} ({extent.value})" if lane.is_divided else lane.name
    repeat = " ".join([".venv/bin/python -m pytest", *options])
    outcome = measured(name, report, lane.about, command, say, repeat, output, may_be_empty=bool(options))
    return replace(outcome, alone=_alone)


def _alone(options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-n", "0", *options, f"@{CHOSEN}"]


class Background:
    """Lanes that run in a thread beside others; their output is kept, and printed when they have ended."""

    def __init__(self, lanes: Sequence[Lane], extent: Extent, options: Sequence[str]) -> None:
        """Start the lanes, one after the other; the arguments are those of `run_lane`."""
        self._lanes, self._extent, self._options = lanes, extent, options
        self._left = list(lanes)
        self._said: list[str] = []
        self._outcomes: list[Outcome] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return this object, whose lanes have started."""
        return self

    def __exit__(self, *_: object) -> None:
        """Start no further lanes, for example if the user has interrupted the others."""
        self._left.clear()

    def _output(self, lane: Lane) -> Path:
        return lane.report(self._extent).with_suffix(".log")

    def _run(self) -> None:
        REPORTS.mkdir(parents=True, exist_ok=True)
        while self._left:
            lane = self._left.pop(0)
            with self._output(lane).open("wb") as output:
                self._outcomes.append(run_lane(lane, self._extent, self._options, self._said.append, output))

    def finish(self, say: Say) -> list[Outcome]:
        """Wait until the lanes have ended, print their output, and return their outcomes. Raises RuntimeError
        if a lane has none.
        """
        self._thread.join()
        for line, lane in zip(self._said, self._lanes, strict=False):
            say(line)
            print(self._output(lane).read_text("utf-8", "replace"), flush=True)
        if len(self._outcomes) < len(self._lanes):
            raise RuntimeError(f"the lane {self._lanes[len(self._outcomes)].name} did not end: see above")
        return self._outcomes


class CompiledBuild:
    """The build of the compiled data path, at low priority beside lanes that wait most of their time."""

    def __init__(self) -> None:
        """Start the build, unless modules cannot be compiled."""
        self._process: subprocess.Popen[bytes] | None = None
        if _hindrance() is None:
            REPORTS.mkdir(parents=True, exist_ok=True)
            with (REPORTS / "build.log").open("wb") as output:
                self._process = subprocess.Popen(_BUILD, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        """Wait until the build has ended. `run_compiled` repeats one that failed, and tells."""
        if self._process is not None:
            self._process.wait()


def _hindrance() -> str | None:
    """Return the reason why modules cannot be compiled."""
    reason: str | None = runpy.run_path(str(ROOT / "setup.py"))["hindrance"]()
    return reason


_BUILD: Final = ("nice", "make", "--no-print-directory", "compiled")


def run_compiled(extent: Extent, options: Sequence[str], say: Say) -> Outcome:
    """Build the compiled data path and run this extent of its tests; skip both, with the reason in the
    outcome, if modules cannot be compiled.
    """
    hindrance = _hindrance()
    if hindrance is not None:
        return Outcome("compiled", (), 0.0, ok=True, note=f"skipped: {hindrance}")
    say("compiled: build")
    began = time.monotonic()
    status = subprocess.run(_BUILD, cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - began
    if status:
        return Outcome("compiled", (), seconds, ok=False, note="it cannot be built")
    report = COMPILED.report(extent)
    chosen = ["-n", "auto", "-m", COMPILED.expression(extent), *COMPILED_TESTS]
    command = _on_compiled([f"--junitxml={report}", *options, *chosen])
    repeat = ".venv/bin/python -m tools.lanes run compiled --pytest --last-failed #"
    outcome = measured(f"compiled ({extent.value})", report, COMPILED.about, command, say, repeat)
    return replace(outcome, alone=_compiled_alone, seconds=outcome.seconds + seconds)


def _on_compiled(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs pytest on the compiled modules. The rooms are imported from
    build/compiled, the tests from here; the plugin refuses to test sources.
    """
    paths = os.pathsep.join([str(ROOT / "build" / "compiled"), str(ROOT)])
    python = ["env", "PYTHONSAFEPATH=1", f"PYTHONPATH={paths}", sys.executable]
    return [*python, "-m", "pytest", "-q", "-o", "pythonpath=", "-p", "tests.tools.compiled_only", *arguments]


def _compiled_alone(options: Sequence[str]) -> list[str]:
    return _on_compiled(["-n", "0", *options, f"@{CHOSEN}"])


def measured(
    name: str,
    report: Path,
    about: str,
    command: list[str],
    say: Say,
    repeat: str = "",
    output: IO[bytes] | None = None,
    *,
    may_be_empty: bool = False,
) -> Outcome:
    """Run the command, which writes this JUnit file, and return the results. `repeat` is the command that
    runs a test again; pytest prints to `output`.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    say(f"{name}: {about}")
    began = time.monotonic()
    stderr = None if output is None else subprocess.STDOUT
    status = subprocess.run(command, cwd=ROOT, stdout=output, stderr=stderr, check=False).returncode
    seconds = time.monotonic() - began
    try:
        cases: tuple[Case, ...] = read_cases(report)
    except (OSError, ET.ParseError) as error:
        return Outcome(name, (), seconds, ok=False, note=f"status {status}, and no report: {error}")
    ok = status == 0 or (status == NOTHING_COLLECTED and may_be_empty and not cases)
    note = (
        "" if ok else "it has no tests" if status == NOTHING_COLLECTED else f"it ended with status {status}"
    )
    return Outcome(name, cases, seconds, ok, note, repeat, is_complete=status in (0, TESTS_FAILED))


def _succeeds(command: Sequence[str], say: Say) -> bool:
    say(_name(command))
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _name(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])
