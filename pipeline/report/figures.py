"""Make figures in plotly's JSON format, with escaped labels and one row per name.

The page's script adds the colours of text and the room for labels, which depend on the reader's screen, and
the names in hover texts, which would otherwise be repeated in every cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final, NamedTuple

from weir.pipeline.report.model import DAY_MS, Columns
from weir.pipeline.report.names import NARROW, WIDE, Label, plot_text
from weir.pipeline.report.units import Quantity, moment

JsonObject = dict[str, object]

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#B8A900")
"""Colours that are distinguishable with any colour blindness, on white and on black (after Okabe and Ito)."""
SYMBOLS: Final = ("circle", "diamond-open", "square")
HEAT: Final = "Cividis"
"""A colour scale that looks the same to colour-blind readers."""
_ROW_PX: Final = 24
_AROUND_PX: Final = 110
_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart in plotly's JSON format, with the labels of its rows; the page's script passes the chart to
    plotly.
    """

    data: list[JsonObject]
    layout: JsonObject
    labels: tuple[Label, ...]
    """Labels of the rows, from top to bottom."""
    columns: tuple[str, ...] = ()
    """Hover texts of a heat map's columns; empty for other figures."""

    def as_json(self) -> JsonObject:
        """Return the figure as a JSON object for the page."""
        return {
            "data": self.data,
            "layout": self.layout,
            "names": [label.hover() for label in self.labels],
            "wide": [label.plot(WIDE) for label in self.labels],
            "narrow": [label.plot(NARROW) for label in self.labels],
            "columns": list(self.columns),
        }


class Series(NamedTuple):
    """Values of one kind, one per row of the figure, with a name and a common colour."""

    name: str
    values: Sequence[float | None]


def bars(labels: Sequence[Label], series: Sequence[Series], quantity: Quantity, *, stacked: bool) -> Figure:
    """Return a figure of horizontal bars, with the first row on top; `stacked` puts a row's bars end to
    end.
    """
    sums = [sum(value or 0 for value in row) for row in zip(*(s.values for s in series), strict=True)]
    highest = sums if stacked else [value or 0 for s in series for value in s.values]
    size, unit = quantity.step(max(highest, default=0))
    data = [
        _bar(each, size, quantity, COLOURS[index % len(COLOURS)], text=len(series) == 1)
        for index, each in enumerate(series)
    ]
    bars_in_row = 1 if stacked else len(series)
    layout = _layout(len(labels), _ROW_PX if bars_in_row == 1 else 8 + 12 * bars_in_row)
    layout["barmode"] = "stack" if stacked else "group"
    layout["bargap"] = 0.25
    layout["showlegend"] = len(series) > 1
    layout["xaxis"] = {"title": {"text": unit}, "rangemode": "tozero", "automargin": True}
    return Figure(data, layout, tuple(labels))


def _bar(series: Series, size: float, quantity: Quantity, colour: str, *, text: bool) -> JsonObject:
    return {
        "type": "bar",
        "orientation": "h",
        "name": _legend(series.name),
        "y": list(range(len(series.values))),
        "x": [None if value is None else _short(value / size) for value in series.values],
        "text": [quantity.text(value) for value in series.values],
        "textposition": "auto" if text else "none",
        "cliponaxis": False,
        "marker": {"color": colour},
        "hovertemplate": "%{customdata[0]}<br>%{text}" + ("<extra></extra>" if text else ""),
    }


def heat(
    labels: Sequence[Label], rows: Sequence[Mapping[int, float]], columns: Columns, quantity: Quantity
) -> Figure:
    """Return a heat map with a cell per row and period, coloured by the value's logarithm; a zero has no
    cell. `rows` have values by beginning of the period (ms).
    """
    starts = columns.starts
    lowest, highest = _decades(value for row in rows for value in row.values())
    data: JsonObject = {
        "type": "heatmap",
        "x": [moment(start + columns.step_ms // 2) for start in starts],
        "y": list(range(len(rows))),
        "z": [[_log(row.get(start)) for start in starts] for row in rows],
        "text": [[quantity.text(row[s]) if row.get(s) else "" for s in starts] for row in rows],
        "zmin": lowest,
        "zmax": highest,
        "colorscale": HEAT,
        "ygap": 1,
        "xgap": 1 if columns.count <= 60 else 0,
        "hoverongaps": False,
        "colorbar": _colour_bar(lowest, highest, quantity),
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{text}<extra></extra>",
    }
    layout = _layout(len(rows), 20)
    end = columns.from_ms + columns.count * columns.step_ms
    layout["xaxis"] = {
        "type": "date",
        "title": {"text": "time (UTC)"},
        "range": [moment(columns.from_ms), moment(end)],
        "automargin": True,
        "showgrid": False,
    }
    return Figure([data], layout, tuple(labels), tuple(_period(start, columns.step_ms) for start in starts))


def _period(start_ms: int, step_ms: int) -> str:
    if step_ms > DAY_MS:
        return f"{moment(start_ms, '%Y-%m-%d')} to {moment(start_ms + step_ms - DAY_MS, '%Y-%m-%d')}"
    return moment(start_ms, "%Y-%m-%d") if step_ms == DAY_MS else f"{moment(start_ms)} UTC"


def points(labels: Sequence[Label], series: Sequence[Series], quantity: Quantity) -> Figure:
    """Return a figure on a logarithmic axis with one mark per row and series, and a line that joins the marks
    of a row. A zero has no mark.
    """
    rows = list(zip(*(each.values for each in series), strict=True))
    lowest, highest = _decades(value for row in rows for value in row if value)
    marks = [
        _marks(each, quantity, COLOURS[index], SYMBOLS[index % len(SYMBOLS)])
        for index, each in enumerate(series)
    ]
    layout = _layout(len(labels), _ROW_PX)
    layout["showlegend"] = True
    layout["xaxis"] = {
        "type": "log",
        "range": [lowest - 0.1, highest + 0.1],
        "automargin": True,
        **_ticks([10.0**e for e in _exponents(lowest, highest)], quantity),
    }
    return Figure([_joints(rows), *marks], layout, tuple(labels))


def _marks(series: Series, quantity: Quantity, colour: str, symbol: str) -> JsonObject:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": _legend(series.name),
        "y": list(range(len(series.values))),
        "x": [_short(value) if value else None for value in series.values],
        "text": [quantity.text(value) for value in series.values],
        "marker": {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}},
        "hovertemplate": "%{customdata[0]}<br>%{text}",
    }


def _joints(rows: Sequence[Sequence[float | None]]) -> JsonObject:
    x: list[float | None] = []
    y: list[int | None] = []
    for index, row in enumerate(rows):
        there = [value for value in row if value]
        if there:
            x += [_short(min(there)), _short(max(there)), None]
            y += [index, index, None]
    line: JsonObject = {"color": "#8C8C8C", "width": 1}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": line,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _layout(rows: int, row_px: int) -> JsonObject:
    return {
        "height": _AROUND_PX + row_px * max(rows, 2),
        "margin": {"l": 8, "r": 24, "t": 40, "b": 40},
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(rows)),
            "range": [rows - 0.5, -0.5],
            "automargin": True,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hoverlabel": {"align": "left", "namelength": -1},
    }


def _legend(name: str) -> str:
    return plot_text(name if len(name) <= WIDE else f"{name[: WIDE - 1]}…")


def _colour_bar(lowest: int, highest: int, quantity: Quantity) -> JsonObject:
    exponents = _exponents(lowest, highest)
    ticks = _ticks([10.0**exponent for exponent in exponents], quantity) | {"tickvals": exponents}
    place: JsonObject = {"orientation": "h", "x": 0.5, "y": 1, "yanchor": "bottom", "thickness": 10}
    return place | ticks


def _ticks(values: Sequence[float], quantity: Quantity) -> JsonObject:
    return {
        "tickmode": "array",
        "tickvals": list(values),
        "ticktext": [quantity.text(value) for value in values],
    }


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """Return two different decimal exponents for the ends of a logarithmic axis: at or below the lowest
    positive value, and at or above the highest.
    """
    positive = [value for value in values if value > 0]
    if not positive:
        return 0, 1
    lowest = floor(log10(min(positive)))
    return lowest, max(ceil(log10(max(positive))), lowest + 1)


def _exponents(lowest: int, highest: int) -> list[int]:
    return list(range(lowest, highest + 1, -(-(highest - lowest + 1) // _TICKS)))


def _log(value: float | None) -> float | None:
    return round(log10(value), 3) if value else None


def _short(value: float) -> float:
    return float(f"{value:.4g}")
