"""The summary after all lanes: tables, skips, failures, and the plain counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tools.lanes.results import OUT_OF_TIME, Case, Outcome, plain_counts, slowest

SLOWEST = 20


def show(console: Console, outcomes: Sequence[Outcome], left_out: Iterable[str], seconds: float) -> None:
    """Print the slowest tests, the lanes with their times, the tests that were not run, and last the plain
    counts.

    All lanes together took `seconds`, which is less than the sum of their times if lanes ran at the same
    time.
    """
    console.print(_slowest_table(outcomes))
    console.print(_lane_table(outcomes, seconds))
    for outcome in outcomes:
        for line in _skipped(outcome):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    for line in (*_passed_alone(outcomes), *_repeat_commands(outcomes), *left_out):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    console.print(plain_counts(outcomes), highlight=False)


def _slowest_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("seconds", "lane", "test", title=f"The {SLOWEST} slowest tests", title_justify="left")
    table.columns[0].justify = "right"
    table.columns[2].overflow = "fold"
    for lane, case in slowest(outcomes, SLOWEST):
        table.add_row(f"{case.seconds:.1f}", lane, Text(case.node_id))  # rich would read [x] as markup
    return table


def _lane_table(outcomes: Sequence[Outcome], seconds: float) -> Table:
    table = Table("lane", "passed", "failed", "skipped", "minutes", "", title="Lanes", title_justify="left")
    for column in table.columns[1:5]:
        column.justify = "right"
    for outcome in outcomes:
        counts = [
            str(outcome.count(word)) if outcome.cases else "" for word in ("passed", "failed", "skipped")
        ]
        verdict = outcome.note or ("" if outcome.ok else "failed")
        table.add_row(outcome.name, *counts, _minutes(outcome.seconds), Text(verdict))
    table.add_row("all", "", "", "", _minutes(seconds), "")
    return table


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02}"


def _skipped(outcome: Outcome) -> Iterable[str]:
    late = sum(OUT_OF_TIME in case.detail for case in outcome.cases)
    if late:
        yield f"Skipped in {outcome.name}: {late} of {len(outcome.cases)} tests: {OUT_OF_TIME}"
    for case in outcome.cases:
        if case.outcome == "skipped" and OUT_OF_TIME not in case.detail:
            yield f"Skipped in {outcome.name}: {case.node_id}: {case.detail}"


def _passed_alone(outcomes: Iterable[Outcome]) -> Iterable[str]:
    for outcome in outcomes:
        for node_id in outcome.passed_alone:
            yield f"Failed beside other tests in {outcome.name}, and passed alone: {node_id}"


def _repeat_commands(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Yield a line for each failed test, with the command that runs the test again."""
    for outcome in outcomes:
        for case in _failed(outcome):
            yield f"Failed in {outcome.name}; to repeat it: {outcome.repeat} '{case.node_id}'"


def _failed(outcome: Outcome) -> list[Case]:
    return [case for case in outcome.cases if case.outcome == "failed"]
