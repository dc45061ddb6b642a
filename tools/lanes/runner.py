"""Runs lanes as processes, one after the other, and measures them."""

from __future__ import annotations

import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from xml.etree import ElementTree as ET

from tools.lanes.lane import COMPILED, ROOT, Extent, Lane, check_commands
from tools.lanes.results import Case, Outcome, read_cases

Say: TypeAlias = Callable[[str], None]
NOTHING_COLLECTED: Final = 5
"""pytest's exit code if no test was selected: a part of a small lane may have none."""


def run_checks(say: Say) -> Outcome:
    """Run the static checks, also those after one that fails."""
    began = time.monotonic()
    failed = [command for command in check_commands() if not _succeeds(command, say)]
    note = ", ".join(f"{_name(command)} failed" for command in failed)
    return Outcome("checks", (), time.monotonic() - began, not failed, note)


def run_lane(lane: Lane, extent: Extent, options: Sequence[str], say: Say) -> Outcome:
    """Run so much of a lane; `options` are pytest's for this run. With options, none of its tests may be
    selected; a lane without any test has failed.
    """
    report = lane.report(extent)
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *lane.pytest(extent)]
    name = f"{lane.name} ({extent.value})" if lane.is_divided else lane.name
    repeat = " ".join([".venv/bin/python -m pytest", *options])
    return _measured(name, report, lane.about, command, say, repeat, may_be_empty=bool(options))


def run_compiled(options: Sequence[str], say: Say) -> Outcome:
    """Build the compiled data path and run its tests; skipped with a reason where nothing can be compiled."""
    hindrance = runpy.run_path(str(ROOT / "setup.py"))["hindrance"]()
    if hindrance is not None:
        return Outcome("compiled", (), 0.0, ok=True, note=f"skipped: {hindrance}")
    report = COMPILED.report(Extent.ALL)
    pytest_options = " ".join([f"--junitxml={report}", *options])
    command = ["make", "--no-print-directory", "check-compiled", f"PYTEST_OPTIONS={pytest_options}"]
    repeat = "make check-compiled PYTEST_OPTIONS=--last-failed #"
    return _measured("compiled", report, COMPILED.about, command, say, repeat, may_be_empty=False)


def _measured(
    name: str, report: Path, about: str, command: list[str], say: Say, repeat: str, *, may_be_empty: bool
) -> Outcome:
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    say(f"{name}: {about}")
    began = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - began
    try:
        cases: tuple[Case, ...] = read_cases(report)
    except (OSError, ET.ParseError) as error:
        return Outcome(name, (), seconds, ok=False, note=f"status {status}, and no report: {error}")
    ok = status == 0 or (status == NOTHING_COLLECTED and may_be_empty and not cases)
    note = (
        "" if ok else "it has no tests" if status == NOTHING_COLLECTED else f"it ended with status {status}"
    )
    return Outcome(name, cases, seconds, ok, note, repeat)


def _succeeds(command: Sequence[str], say: Say) -> bool:
    say(_name(command))
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _name(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])
