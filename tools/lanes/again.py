"""Run failed tests of real brokers and of Spark once more, one after another.

A test of this kind has time limits, and shares the cores with the tests beside it and with other work of
the machine. So a test that has failed gets a second run without neighbours. The summary names each test that
needed it: a test that is named often has a fault. Fast tests get no second run, because time is an argument
in them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tools.lanes.lane import REPORTS
from tools.lanes.results import Case, Outcome
from tools.lanes.runner import Say, measured

FAILED_MAX: Final = 5
"""Maximum number of a lane's failed tests that run again; more failures are no accident."""


def again(outcomes: Sequence[Outcome], say: Say, options: Sequence[str] = ()) -> list[Outcome]:
    """Return the outcomes; those of lanes that permit it after a second run of their failed tests, with these
    options of pytest.
    """
    return [_again(outcome, say, options) if _may_run_again(outcome) else outcome for outcome in outcomes]


def _may_run_again(outcome: Outcome) -> bool:
    return outcome.is_timed and outcome.is_complete and 0 < outcome.count("failed") <= FAILED_MAX


def _again(outcome: Outcome, say: Say, options: Sequence[str]) -> Outcome:
    failed = [case.node_id for case in outcome.cases if case.outcome == "failed"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        f"--junitxml={REPORTS / 'again.xml'}",
        *options,
        *failed,
    ]
    second = measured(
        f"{outcome.name}, again", REPORTS / "again.xml", "failed tests, without neighbours", command, say
    )
    passed = {case.node_id for case in second.cases if case.outcome == "passed"}.intersection(failed)
    return replace(
        outcome,
        cases=tuple(_passed(case) if case.node_id in passed else case for case in outcome.cases),
        seconds=outcome.seconds + second.seconds,
        ok=second.ok and passed == set(failed),
        note=f"{len(passed)} of {len(failed)} failed tests passed without neighbours",
        passed_alone=tuple(sorted(passed)),
    )


def _passed(case: Case) -> Case:
    return replace(case, outcome="passed")
