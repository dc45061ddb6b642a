"""Format the plan and the findings of `weir calibrate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import click
import msgspec

from weir.calibration.run import CalibrationPlan, CalibrationResults
from weir.cli.quotas.show import clean, columns
from weir.quotas.costs.calibration import median
from weir.quotas.costs.cost_findings import Coefficient, CostFindings

HEADINGS: Final = ("API", "coefficient", "old", "new", "spread")


class CoefficientEntry(msgspec.Struct):
    """JSON object for one coefficient of an API's cost: its value before and after the calibration."""

    api: str
    """Name of the API; `cold` for the time that a request costs more at a broker that was idle before; `rest`
    for all APIs without coefficients of their own.
    """
    coefficient: str
    old: float | None
    new: float
    low: float
    high: float
    measured: bool
    """True if the coefficient was measured; False if it is the assumed one, multiplied by the median ratio of
    measured to assumed costs.
    """


class ReadingEntry(msgspec.Struct):
    """JSON object with the measured costs of one kind of request."""

    api: str
    case: str
    us: list[float]
    """Broker's time (µs) per request, one value for each round of the calibration."""
    requests: int


class PlanEntry(msgspec.Struct):
    """JSON object with the plan of the calibration: its requests, duration, and names at the broker."""

    client_ids: str
    topic: str | None
    group: str | None
    requests: int
    lasts_s: float
    thread_s: float
    cases: list[str]


class CalibrationReport(msgspec.Struct):
    """The JSON object that `weir calibrate --json` prints."""

    upstream: str
    node_id: int
    generation: str
    dry_run: bool
    plan: PlanEntry
    ratio: float | None
    """Median ratio of measured costs to the costs that Weir assumed before; null if nothing was measured."""
    coefficients: list[CoefficientEntry]
    readings: list[ReadingEntry]
    misfits: dict[str, float]
    left_out: dict[str, str]
    notes: list[str]
    left_behind: list[str]
    output: str | None


def plan_lines(outlook: CalibrationPlan, share: float, method: str) -> Iterator[str]:
    """Yield lines of text that describe the plan of the calibration."""
    yield f"{outlook.address}: node {outlook.node_id}, taken for one like {outlook.generation}; by {method}"
    yield (
        f"about {outlook.requests} requests in about {outlook.lasts_s:.0f} s, which take about "
        f"{outlook.thread_s:.1f} s of its threads: of one thread at most {share * 100:g} % on average"
    )
    yield f"quotas of its own: client-id {outlook.client_ids}, removed afterwards"
    if outlook.topic is not None:
        yield f"a topic of its own: {outlook.topic}, at this broker only, deleted afterwards"
    if outlook.group is not None:
        yield f"a group of its own: {outlook.group}, deleted afterwards"
    left = [*{str(entity) for entity, _key in outlook.left_quotas}, *outlook.left_topics]
    if left:
        yield f"left by an earlier run, and removed first: {len(left)} quotas and topics, {clean(min(left))}"


def case_lines(outlook: CalibrationPlan) -> list[str]:
    """Return the lines of a table with the API, version and name of each request to be measured."""
    rows = [("API", "version", "request")]
    rows += [(case.api, str(case.request.version), case.name) for case in outlook.cases]
    return columns(rows)


def report(
    outlook: CalibrationPlan,
    findings: CalibrationResults | None,
    found: CostFindings | None,
    output: str | None,
) -> CalibrationReport:
    """Return the JSON object that `weir calibrate --json` prints."""
    plan = PlanEntry(
        outlook.client_ids,
        outlook.topic,
        outlook.group,
        outlook.requests,
        round(outlook.lasts_s, 1),
        round(outlook.thread_s, 2),
        [f"{case.api} {case.name}".strip() for case in outlook.cases],
    )
    readings = findings.found if findings is not None else []
    return CalibrationReport(
        str(outlook.address),
        outlook.node_id,
        outlook.generation,
        findings is None,
        plan,
        round(found.ratio, 3) if found is not None else None,
        [_entry(one) for one in (found.coefficients if found is not None else [])],
        [
            ReadingEntry(one.case.api, one.case.name, [round(us, 2) for us in one.us], one.requests)
            for one in readings
        ],
        {api: round(value, 3) for api, value in (found.misfits if found is not None else {}).items()},
        findings.left_out if findings is not None else {},
        findings.notes if findings is not None else [],
        findings.left_behind if findings is not None else [],
        output,
    )


def _entry(one: Coefficient) -> CoefficientEntry:
    new, low, high = (round(value, 3) for value in (one.new, one.low, one.high))
    return CoefficientEntry(one.api, one.name, one.old, new, low, high, one.measured)


def show(found: CostFindings, findings: CalibrationResults) -> None:
    """Print a table of the coefficients before and after the calibration, and their accuracy."""
    rows = [_row(one) for one in found.coefficients if one.measured]
    if sys.stdout.isatty():
        _draw(rows)
    else:
        click.echo("\n".join(columns([HEADINGS, *rows])))
    click.echo()
    for line in summary(found, findings):
        click.echo(line)


def summary(found: CostFindings, findings: CalibrationResults) -> Iterator[str]:
    """Yield the remarks to print below the table of coefficients."""
    spread = median([max(one.us) / min(one.us) for one in findings.found])
    requests = sum(one.requests for one in findings.found)
    yield f"{requests} requests measured; between rounds the same one differs by {spread:.2f} times (median)"
    yield f"this broker costs {found.ratio:.2f} times what was assumed (median), by which all else is scaled"
    if found.misfits:
        worst = max(found.misfits, key=lambda api: found.misfits[api])
        yield (
            f"the coefficients meet the readings within {median(list(found.misfits.values())):.2f} times "
            f"(median), at worst {found.misfits[worst]:.2f} times ({worst})"
        )
    yield from (f"left out: {what}: {reason}" for what, reason in sorted(findings.left_out.items()))
    yield from findings.notes


def _row(one: Coefficient) -> tuple[str, str, str, str, str]:
    old = "none" if one.old is None else _number(one.old)
    return one.api, one.name, old, _number(one.new), f"{_number(one.low)} - {_number(one.high)}"


def _number(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _draw(rows: Sequence[tuple[str, str, str, str, str]]) -> None:
    from rich.console import Console  # `weir run` does not need it
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if index < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
