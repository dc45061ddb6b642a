"""The page of `weir probe`: the cases by API and version, and the failures."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from weir.conformance.report.matrix import SIGNS, Tone, VersionCell, cell_id, matrix
from weir.conformance.report.page import Card, CellCases, Page, Panel, PassedCases, by_weight, origins, worst
from weir.conformance.report.probed import CaseVerdict, alike
from weir.conformance.report.text import counted, ranges, visible
from weir.protocol import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weir.conformance.probe.case import Result
    from weir.conformance.report.probed import Probed, ProbeReport

_LEGEND: Final = [
    (Tone.OK, "all cases passed"),
    (Tone.ERROR, "cases failed"),
    (Tone.NOTE, "failed as known"),
    (Tone.UNSEEN, "no cases"),
    (Tone.NONE, "no such version"),
]
_TONES: Final = {CaseVerdict.PASSED: Tone.OK, CaseVerdict.KNOWN: Tone.NOTE, CaseVerdict.FAILED: Tone.ERROR}
_NO_KEY: Final = 1 << 16
"""First number for results that name no API of the schemas, such as those of quotas."""
_REPEATS_MAX: Final = 5
_NAMES_MAX: Final = 3000
"""Maximum number of characters of the names of a cell's cases with one outcome."""

Cells = dict[tuple[str, int], list["Probed"]]


def probe_page(report: ProbeReport) -> Page:
    """Return the page of a probe's report."""
    probed = report.cases
    by_cell: Cells = {}
    for one in probed:
        by_cell.setdefault((one.result.api, one.result.version), []).append(one)
    target, cards = visible(report.target), _cards(probed)
    return Page(
        kind="weir probe",
        title=f"weir probe: {target}",
        subject=target,
        verdict=_verdict(report),
        tone=Tone.ERROR if report.missing else _tone(probed) if probed else Tone.WARNING,
        panels=_panels(probed, cards),
        facts=[
            ("cases", f"{len(probed):,}"),
            ("passed", f"{report.count(CaseVerdict.PASSED):,}"),
            ("APIs", f"{len({one.result.api for one in probed}):,}"),
            ("seed", str(report.seed)),
        ],
        matrix=matrix(*_cells(by_cell), _joined),
        legend=_LEGEND,
        cards_title="Failures",
        cards=cards,
        cases=[_cases(members) for _key, members in sorted(by_cell.items())],
        notes=[
            *(f"Not run: {visible(name)}" for name in report.missing[:50]),
            *map(visible, report.notes[:50]),
        ],
        empty="Every case passed." if probed else "No case ran.",
    )


def _verdict(report: ProbeReport) -> str:
    if not report.cases:
        return "no case ran"
    failed, known = report.count(CaseVerdict.FAILED), report.count(CaseVerdict.KNOWN)
    cases = counted(len(report.cases), "case")
    parts = [f"{failed:,} of {cases} failed" if failed else "" if known else f"all {cases} passed"]
    parts += [f"{known:,} failed as known" if known else ""]
    parts += [f"{len(report.missing):,} expected cases did not run" if report.missing else ""]
    return ", ".join(filter(None, parts))


def _panels(probed: Sequence[Probed], cards: Sequence[Card]) -> list[Panel]:
    """Return a panel per outcome of failed cases: what the target did."""
    found: dict[str, list[Probed]] = {}
    for one in probed:
        if one.verdict is not CaseVerdict.PASSED:
            found.setdefault(one.result.outcome.value, []).append(one)
    return [
        Panel(
            _SAID[name],
            counted(len(members), "case"),
            _tone(members),
            f"by-{name}",
            origins(cards, f"by-{name}"),
        )
        for name, members in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


_SAID: Final = {
    "answer": "Answered wrongly",
    "error": "Answered a wrong error",
    "closed": "Closed the connection",
    "silence": "Stayed silent",
    "hung": "Hung",
    "unreadable": "Answered unreadably",
    "refused": "Refused the connection",
}


def _tone(probed: Iterable[Probed]) -> Tone:
    return worst(_TONES[one.verdict] for one in probed)


def _cells(by_cell: Cells) -> tuple[dict[int, str], dict[tuple[int, int], VersionCell]]:
    """Return (API key → name, API key and version → cell)."""
    keys = {schema_api.name: key for key in schema.api_keys() if (schema_api := schema.api(key)) is not None}
    for name in sorted({api for api, _version in by_cell} - {*keys}):
        keys[name] = _number(name, _NO_KEY + len(keys))
    names = {keys[api]: visible(api, 60) for api, _version in by_cell}
    return names, {(keys[api], version): _cell(found) for (api, version), found in by_cell.items()}


def _number(name: str, default: int) -> int:
    found = re.fullmatch(r"API (-?\d{1,5})", name)
    return int(found[1]) if found else default


def _cell(probed: Sequence[Probed]) -> VersionCell:
    result = probed[0].result
    failed = sum(one.verdict is not CaseVerdict.PASSED for one in probed)
    tone, passed = _tone(probed), len(probed) - failed
    name = f"{visible(result.api)} v{result.version}"
    return VersionCell(
        tone=tone,
        version=f"v{result.version}",
        text=f"{passed}/{len(probed)}" if failed else str(passed),
        marks=[(tone, f"{SIGNS[tone]}{failed}")] if failed else [],
        title=f"{name}: {counted(passed, 'case')} passed, {failed} failed",
        id=cell_id(visible(result.api), result.version),
    )


def _joined(cells: list[VersionCell]) -> VersionCell:
    """Return one cell for versions without a column: it leads to the gravest."""
    gravest = min(cells, key=lambda cell: list(Tone).index(cell.tone))
    title = "; ".join(cell.title for cell in cells[:5])
    return VersionCell(
        gravest.tone, "other", counted(len(cells), "version"), gravest.marks, title, gravest.id
    )


def _cards(probed: Iterable[Probed]) -> list[Card]:
    """Return a card per API and equal failure, with all versions."""
    return by_weight(_card(members) for members in alike(probed))


def _card(probed: Sequence[Probed]) -> Card:
    one = probed[0].result
    versions = sorted({member.result.version for member in probed})
    left = len(probed) - _REPEATS_MAX
    api = visible(one.api)
    return Card(
        tone=_tone(probed),
        label=one.summary,
        title=visible(probed[0].message),
        where=api,
        versions=ranges(versions),
        count=len(probed),
        counted=counted(len(probed), "case"),
        cells=[*(cell_id(api, version) for version in versions), f"by-{one.outcome.value}"],
        known=probed[0].verdict is CaseVerdict.KNOWN,
        repeats=[visible(member.result.repeat or member.result.case) for member in probed[:_REPEATS_MAX]],
        more=f"and {counted(left, 'case')} more, listed below among the cases" if left > 0 else "",
    )


def _cases(probed: Sequence[Probed]) -> CellCases:
    first = probed[0].result
    api, failed = visible(first.api), [one.result for one in probed if one.verdict is not CaseVerdict.PASSED]
    by_outcome: dict[str, list[str]] = {}
    for one in probed:
        if one.verdict is CaseVerdict.PASSED:
            by_outcome.setdefault(one.result.summary, []).append(_short(one.result))
    return CellCases(
        id=cell_id(api, first.version),
        title=f"{api} v{first.version}",
        count=f"{len(probed) - len(failed)} of {counted(len(probed), 'case')} passed",
        tone=_tone(probed),
        passed=[
            PassedCases(outcome, visible(", ".join(names), _NAMES_MAX))
            for outcome, names in sorted(by_outcome.items())
        ],
        failed=[visible(f"{_short(result)}: {result.summary}") for result in failed[:100]],
    )


def _short(result: Result) -> str:
    """Return a case's name without its API and version."""
    return result.case.removeprefix(f"{result.api}/").removeprefix(f"v{result.version}/")
