"""Format tables as Markdown or for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import rich.table
from rich import box
from rich.console import Console

from bench.report import Table


def markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """Return tables and notes as Markdown, in the form of docs/background/performance.md."""
    parts = [f"{table.title}:\n\n{markdown_table(table)}" for table in tables]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """Return a Markdown table; all columns but the first are aligned right."""
    rules = ["---"] + ["---:"] * (len(table.head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [table.head, rules, *table.lines])


def terminal(console: Console, tables: Sequence[Table], notes: Sequence[str]) -> None:
    """Print tables and notes to a terminal, as wide as the terminal."""
    for table in tables:
        shown = rich.table.Table(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for index, title in enumerate(table.head):
            shown.add_column(title, justify="right" if index else "left")
        for line in table.lines:
            shown.add_row(*line)
        console.print(shown)
    for note in notes:
        console.print(f"- {note}", markup=False, highlight=False)
