"""Run failed tests once more, one after another.

Tests with real brokers, with Spark or with other processes have time limits, and share the cores with the
tests beside them and with other work of the machine. So a test that has failed gets a second run without
neighbours. The summary names each test that needed it: a test that is named often has a fault. A fault in
the rules fails again, because time is an argument there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tools.lanes.results import CHOSEN, REPORTS, Case, Outcome
from tools.lanes.runner import Say, measured

FAILED_MAX: Final = 5
"""Maximum number of a lane's failed tests that run again; more failures are no accident."""


def again(outcomes: Sequence[Outcome], say: Say, options: Sequence[str] = ()) -> list[Outcome]:
    """Return the outcomes; those of lanes with few failed tests after a second run of these, with these
    options of pytest.
    """
    return [_again(outcome, say, options) if _may_run_again(outcome) else outcome for outcome in outcomes]


def _may_run_again(outcome: Outcome) -> bool:
    return outcome.is_complete and 0 < outcome.count("failed") <= FAILED_MAX


def _again(outcome: Outcome, say: Say, options: Sequence[str]) -> Outcome:
    assert outcome.alone is not None
    failed = [case.node_id for case in outcome.cases if case.outcome == "failed"]
    report = REPORTS / "again.xml"
    CHOSEN.parent.mkdir(parents=True, exist_ok=True)
    CHOSEN.write_text("\n".join(failed), "utf-8")
    command = outcome.alone([f"--junitxml={report}", *options])
    second = measured(f"{outcome.name}, again", report, "failed tests, without neighbours", command, say)
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
