"""Datasheets beside each other: as rows of text, and as an HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weir.conformance.quota_names import FETCH, PRODUCE, REQUEST
from weir.conformance.report.page import render_template
from weir.conformance.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weir.conformance.probe.measure.figures import Spread, StartFigures, SteadyFigures
    from weir.conformance.probe.measure.sheet import ByteSheet, Datasheet, MutationSheet, TimeSheet

T = TypeVar("T")
LACKING: Final = "-"
"""Text of a figure that a target lacks."""


class SheetRow(msgspec.Struct, frozen=True):
    """A figure of all sheets. A row without cells is a heading."""

    name: str
    cells: list[str] = []


def rows(sheets: Sequence[Datasheet]) -> list[SheetRow]:
    """Return a row for each figure, with a cell for each sheet."""
    parts: list[tuple[str, dict[str, list[str]]]] = [
        (f"Produce: {PRODUCE}", _table([one.produce for one in sheets], _byte_cells)),
        (f"Fetch: {FETCH}", _table([one.fetch for one in sheets], _byte_cells)),
        (f"Metadata: {REQUEST}", _table([one.request_time for one in sheets], _time_cells)),
        ("CreatePartitions, refused with error 89", _table([one.strict for one in sheets], _mutation_cells)),
        ("CreatePartitions, older version", _table([one.lax for one in sheets], _mutation_cells)),
        ("Error 89 in versions", _table([one.error_89 or None for one in sheets], dict)),
    ]
    found = []
    for heading, table in parts:
        if table:
            found += [SheetRow(heading), *(SheetRow(name, cells) for name, cells in table.items())]
    return found


def _table(parts: Sequence[T | None], cells_of: Callable[[T], dict[str, str]]) -> dict[str, list[str]]:
    """Return the name of a figure → its cell in each sheet."""
    columns = [{} if part is None else cells_of(part) for part in parts]
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name, LACKING) for column in columns] for name in names}


def _byte_cells(sheet: ByteSheet) -> dict[str, str]:
    shared = sheet.shared
    return {
        **_steady_cells(sheet.steady, "quota"),
        **_start_cells(sheet.start),
        "ten connections: rate ÷ quota": f"{shared.rate:.3f}",
        "ten connections: shares": f"{shared.least:.2f} to {shared.most:.2f}",
        "ten connections: fairness (Jain)": f"{shared.fairness:.3f}",
    }


def _time_cells(sheet: TimeSheet) -> dict[str, str]:
    counted = {
        f"requests/s under {sheet.percent:g} %": f"{sheet.requests_per_s:.1f}",
        "time counted for a request (ms)": f"{sheet.request_ms:.3f}",
    }
    cells = counted | _steady_cells(sheet.steady, "mean") | _start_cells(sheet.start)
    return {name: cell for name, cell in cells.items() if not name.endswith("60 s")}


def _mutation_cells(sheet: MutationSheet) -> dict[str, str]:
    cells = {"version": str(sheet.version)} | _steady_cells(sheet.steady, "quota")
    return cells | _start_cells(sheet.start) | {"error 89 (times)": str(sheet.steady.refused)}


def _steady_cells(steady: SteadyFigures, of: str) -> dict[str, str]:
    cells = {f"rate ÷ {of}, {window} s": _spread(spread) for window, spread in steady.rates.items()}
    told = {"throttled responses": str(steady.throttles), "throttle times (s)": f"{steady.throttled_s:.1f}"}
    return cells | told


def _spread(spread: Spread) -> str:
    if spread.least == spread.most:
        return f"{spread.mean:.3f}"
    return f"{spread.least:.2f} to {spread.most:.2f}"


def _start_cells(start: StartFigures) -> dict[str, str]:
    recovery = LACKING if start.recovery_s is None else f"{start.recovery_s:.1f}"
    return {"overshoot at the start (s)": f"{start.overshoot_s:.1f}", "time to recover (s)": recovery}


def sheet_page(sheets: Sequence[Datasheet]) -> bytes:
    """Return an HTML page with the sheets beside each other. Raises ToolMissingError."""
    return render_template(
        "datasheet.html.j2",
        names=[visible(sheet.target) for sheet in sheets],
        dates=[visible(sheet.date) for sheet in sheets],
        rows=rows(sheets),
        late=[f"{sheet.late_ms:.0f} ms" for sheet in sheets],
        notes=[visible(f"{sheet.target}: {note}") for sheet in sheets for note in sheet.notes],
    )
