"""Judges if an outcome keeps the protocol, and writes the line that says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.conformance.probe.case import CaseOutcome
from weir.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from weir.conformance.probe.case import Case

_DID: Final = {
    CaseOutcome.ANSWER: "answers without an error code",
    CaseOutcome.ERROR: "answers with an error code",
    CaseOutcome.CLOSED: "closes the connection without a response",
    CaseOutcome.SILENCE: "sends no response",
    CaseOutcome.HUNG: "neither answers nor closes the connection in time",
    CaseOutcome.UNREADABLE: "sends an unreadable response",
    CaseOutcome.REFUSED: "refuses the connection",
}


def judge(case: Case, outcome: CaseOutcome, errors: Collection[int], detail: str = "") -> tuple[bool, str]:
    """Return (True, "") if the case permits the outcome and the error codes. Otherwise (False, line): what
    the target does, and what the protocol asks for. `detail`: text about an unreadable response.
    """
    failure = _failure(case, outcome, errors, detail)
    return not failure, f"{case.request} {failure}".strip() if failure else ""


def _failure(case: Case, outcome: CaseOutcome, errors: Collection[int], detail: str) -> str:
    did = _DID[outcome] + (f" ({detail})" if detail else "")
    if outcome not in case.permitted:
        should = " or ".join(sorted(_DID[permitted] for permitted in case.permitted))
        codes = f", {named(errors)}" if errors else ""
        return f"The target {did}{codes}. A target {should}{_by(case)}."
    wrong = [] if case.errors is None else sorted(set(errors) - case.errors)
    if wrong:
        return f"The target answers with {named(wrong)}, which does not belong to this request{_by(case)}."
    return ""


def named(codes: Iterable[int]) -> str:
    """Return error codes with their names: "error 3 (UNKNOWN_TOPIC_OR_PARTITION)"."""
    known = set(ErrorCode)
    return ", ".join(
        f"error {code} ({ErrorCode(code).name})" if code in known else f"error {code}" for code in codes
    )


def _by(case: Case) -> str:
    return f" ({case.reference})" if case.reference else ""
