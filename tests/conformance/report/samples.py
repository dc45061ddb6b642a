"""Findings and results of cases."""

from __future__ import annotations

from collections.abc import Sequence

from weir.conformance.events import Side
from weir.conformance.probe.case import CaseOutcome, Result
from weir.conformance.probe.outcomes import ProbeOutcomes
from weir.conformance.verify import RULES, Finding, R


def finding(
    rule: R = R.BATCH_CRC,
    api: str = "Produce",
    version: int = 9,
    path: str = "records",
    side: Side = Side.CLIENT,
    found: str = "1",
) -> Finding:
    """A finding; its other texts are harmless."""
    return Finding(
        rule=rule,
        severity=RULES[rule].severity,
        connection=4,
        time_ns=1,
        side=side,
        api=api,
        version=version,
        correlation_id=7,
        message="The checksum does not fit the bytes.",
        path=path,
        offset=2,
        expected="2",
        found=found,
        context="00 01 [02] 03",
    )


def result(
    name: str, outcome: CaseOutcome = CaseOutcome.ANSWER, errors: Sequence[int] = (), message: str = ""
) -> Result:
    """The result of a case, such as "Fetch/v9/minimal"; it failed if it has a message."""
    api, version, _ = name.split("/", 2)
    repeat = f"weir probe --upstream a:1 --only {name}"
    return Result(name, api, int(version[1:]), outcome, [*errors], not message, message, repeat)


def run(*results: Result, notes: Sequence[str] = ()) -> ProbeOutcomes:
    return ProbeOutcomes("kafka-1:9092", 7, [*results], [*notes])
