"""The page of `weir verify`: what was checked, and the findings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from weir.conformance.events import Side
from weir.conformance.report.groups import totals
from weir.conformance.report.matrix import SIGNS, Tone, VersionCell, cell_id, matrix
from weir.conformance.report.page import Card, Page, Panel, by_weight, origins, worst
from weir.conformance.report.text import counted, ranges, size, visible
from weir.conformance.verify.finding import without_indices
from weir.conformance.verify.rules import RULES, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.conformance.report.groups import Checked, FindingGroup, VerifyReport
    from weir.conformance.report.matrix import Matrix
    from weir.conformance.verify.traffic import Exchange

NO_FRAME: Final = "no frame was checked"
_TONES: Final = {severity: Tone(severity.value) for severity in Severity}
_LEGEND: Final = [
    (Tone.OK, "no findings"),
    (Tone.ERROR, "errors"),
    (Tone.WARNING, "warnings"),
    (Tone.NOTE, "notes"),
    (Tone.UNSEEN, "not seen"),
    (Tone.NONE, "no such version"),
]
_NAMES: Final = {Side.CLIENT: "client", Side.SERVER: "server"}


def verify_page(report: VerifyReport) -> Page:
    """Return the page of a report that has `checked`."""
    assert report.checked is not None
    checked, groups = report.checked, report.findings
    captures = ", ".join(visible(name) for name in checked.captures[:5])
    left = len(checked.captures) - 5
    cards = _cards(groups)
    return Page(
        kind="weir verify",
        title=f"weir verify: {captures}",
        subject=captures + (f" and {left} more" if left > 0 else ""),
        verdict=spoken(groups, checked),
        tone=_tone(groups) if checked.frames or groups else Tone.WARNING,
        panels=[_panel(side, groups, checked, cards) for side in Side],
        facts=[
            ("frames", f"{checked.frames:,}"),
            ("connections", f"{checked.connections:,}"),
            ("checked", size(checked.bytes)),
            ("APIs", f"{len({one.api_key for one in checked.apis}):,}"),
            *([("captures", f"{len(checked.captures):,}")] if len(checked.captures) > 1 else []),
        ],
        matrix=_matrix(checked.apis, groups),
        legend=_LEGEND,
        cards_title="Findings",
        cards=cards,
        empty="Every frame that was checked keeps the rules." if checked.frames else "No frame was checked.",
    )


def spoken(groups: Sequence[FindingGroup], checked: Checked) -> str:
    """Return the verdict: "2 errors, 1 warning", "no findings"."""
    found = ", ".join(counted(count, severity.value) for severity, count in totals(groups).items())
    return found or ("no findings" if checked.frames else NO_FRAME)


def _tone(groups: Sequence[FindingGroup]) -> Tone:
    return worst(_TONES[group.first.severity] for group in groups)


def _panel(side: Side, groups: Sequence[FindingGroup], checked: Checked, cards: Sequence[Card]) -> Panel:
    own = [group for group in groups if group.first.side is side]
    name = f"by-{_NAMES[side]}"
    return Panel(f"The {_NAMES[side]} sent", spoken(own, checked), _tone(own), name, origins(cards, name))


def _matrix(exchanges: Sequence[Exchange], groups: Sequence[FindingGroup]) -> Matrix:
    by_cell: dict[tuple[str, int], list[FindingGroup]] = {}
    for group in groups:
        by_cell.setdefault((group.first.api, group.first.version), []).append(group)
    cells = {
        (one.api_key, one.version): _cell(one, by_cell.get((one.api, one.version), [])) for one in exchanges
    }
    return matrix({one.api_key: one.api for one in exchanges}, cells, _joined)


def _cell(one: Exchange, groups: Sequence[FindingGroup]) -> VersionCell:
    found = totals(groups)
    counts = [counted(one.requests, "request"), counted(one.responses, "response")]
    counts += [counted(count, severity.value) for severity, count in found.items()]
    return VersionCell(
        tone=_tone(groups),
        version=f"v{one.version}",
        text=_short(one.frames),
        marks=[
            (_TONES[severity], f"{SIGNS[_TONES[severity]]}{_short(count)}")
            for severity, count in found.items()
        ],
        title=f"{one.api} v{one.version}: {', '.join(counts)}",
        id=cell_id(one.api, one.version) if groups else "",
    )


def _joined(cells: list[VersionCell]) -> VersionCell:
    """Return one cell for versions without a column."""
    title, tone = "; ".join(cell.title for cell in cells[:5]), worst(cell.tone for cell in cells)
    link = next((cell.id for cell in cells if cell.id), "")
    return VersionCell(tone, "other", counted(len(cells), "version"), [], title, link)


def _short(count: int) -> str:
    """Return a number in at most four characters: "999", "1.2k", "12k", "3.4M"."""
    value = float(count)
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.1f}{unit}" if unit and value < 9.95 else f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def _cards(groups: Sequence[FindingGroup]) -> list[Card]:
    """Return a card per rule, sender, API and field. It has all versions: a peer seldom errs in one alone."""
    alike: dict[tuple[object, ...], list[FindingGroup]] = {}
    for group in groups:
        one = group.first
        key = (one.rule, one.side, one.api, without_indices(one.path), group.new, one.message)
        alike.setdefault(key, []).append(group)
    return by_weight(_card(members) for members in alike.values())


def _card(groups: Sequence[FindingGroup]) -> Card:
    one = groups[0].first
    rule = RULES[one.rule]
    versions = sorted({group.first.version for group in groups if group.first.version >= 0})
    sender, total = _NAMES[one.side], sum(group.count for group in groups)
    return Card(
        tone=_TONES[one.severity],
        label=one.severity.value,
        title=visible(one.message),
        where=visible(one.api),
        versions=ranges(versions)[:80] if one.api else "",
        count=total,
        counted=counted(total, "time"),
        cells=[*(cell_id(one.api, version) for version in versions[:100]), f"by-{sender}"],
        sender=sender,
        path=visible(one.path),
        expected=visible(one.expected),
        found=visible(one.found),
        context=_context(one.context),
        place=_place(groups[0]),
        rule=one.rule.value,
        explanation=rule.explanation,
        reference=rule.reference or "Weir",
        known=not groups[0].new,
    )


def _context(text: str) -> tuple[str, str, str]:
    """Split hex at the byte in brackets (`Finding.context`)."""
    before, _, rest = text.partition("[")
    byte, _, after = rest.partition("]")
    return visible(before.strip()), visible(byte), visible(after.strip())


def _place(group: FindingGroup) -> str:
    one = group.first
    moment = datetime.fromtimestamp(min(max(one.time_ns, 0) // 1_000_000_000, 4_000_000_000), UTC)
    parts = [f"connection {one.connection}"]
    parts += [f"correlation id {one.correlation_id}"] if one.api else []
    parts += [f"byte {one.offset} of the frame"] if one.offset >= 0 else []
    parts += [f"{moment:%Y-%m-%d %H:%M:%S} UTC"] if one.time_ns > 0 else []
    parts += [visible(group.capture)] if group.capture else []
    return ", ".join(parts)
