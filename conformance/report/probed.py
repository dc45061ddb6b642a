"""Results of a probe, compared with a baseline or with expected outcomes."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.expectations import Difference
    from weir.conformance.probe.outcomes import ProbeOutcomes

Key = tuple[str, str]
"""Name of a case, and its outcome with error codes (`Result.summary`)."""


class CaseVerdict(StrEnum):
    """A report's view of a case."""

    PASSED = "passed"
    KNOWN = "known"
    """The case failed in the same way as in the baseline, or as expected."""
    FAILED = "failed"


class Probed(msgspec.Struct, frozen=True):
    """The result of a case, with its verdict."""

    result: Result
    verdict: CaseVerdict
    message: str
    """"" if passed; otherwise one line that says what is wrong."""


class ProbeReport(msgspec.Struct, frozen=True):
    """Results of a probe with their verdicts."""

    target: str
    """Address of the target, "host:port"."""
    seed: int
    cases: list[Probed]
    missing: list[str]
    """Names of expected cases that were not run."""
    notes: list[str]

    def count(self, verdict: CaseVerdict) -> int:
        """Return the number of cases with this verdict."""
        return sum(one.verdict is verdict for one in self.cases)


def probe_report(
    found: ProbeOutcomes, known: Collection[Key] = (), wrong: Iterable[Difference] | None = None
) -> ProbeReport:
    """Return the report of a run. `known`: failures of the baseline. `wrong`: differences from the expected
    outcomes, which then decide alone; None without expectations.
    """
    if wrong is None:
        cases = [Probed(one, _compared(one, known), one.message) for one in found.results]
        return ProbeReport(found.target, found.seed, cases, [], found.notes)
    differing = {one.case: one for one in wrong}
    cases = [_expected(one, differing.get(one.case)) for one in found.results]
    missing = [name for name, one in differing.items() if one.found is None]
    return ProbeReport(found.target, found.seed, cases, missing, found.notes)


def alike(probed: Iterable[Probed]) -> list[list[Probed]]:
    """Return the cases that did not pass, in groups: same API, verdict and outcome, and the same message but
    for numbers, which differ between versions.
    """
    groups: dict[tuple[object, ...], list[Probed]] = {}
    for one in probed:
        if one.verdict is not CaseVerdict.PASSED:
            result, message = one.result, re.sub(r"\d+", "", one.message)
            groups.setdefault((one.verdict, result.api, result.summary, message), []).append(one)
    return list(groups.values())


def _compared(result: Result, known: Collection[Key]) -> CaseVerdict:
    if result.passed:
        return CaseVerdict.PASSED
    return CaseVerdict.KNOWN if (result.case, result.summary) in known else CaseVerdict.FAILED


def _expected(result: Result, difference: Difference | None) -> Probed:
    if difference is None:
        return Probed(result, CaseVerdict.PASSED if result.passed else CaseVerdict.KNOWN, result.message)
    expected = difference.expected or "no such case"
    text = f"The outcome is {result.summary}, the expected one is {expected}. {result.message}"
    return Probed(result, CaseVerdict.FAILED, text.rstrip())
