"""Tables as markdown, for documents, and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import rich.table
from rich import box
from rich.console import Console

from bench.report import Table


def markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """As in docs/background/performance.md."""
    parts = [f"{table.title}:\n\n{_markdown_table(table)}" for table in tables]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    """All columns but the first are aligned right."""
    rules = ["---"] + ["---:"] * (len(table.head) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [table.head, rules, *table.lines])


def terminal(console: Console, tables: Sequence[Table], notes: Sequence[str]) -> None:
    """The same, as wide as the terminal."""
    for table in tables:
        shown = rich.table.Table(title=table.title, title_justify="left", box=box.SIMPLE_HEAD)
        for index, title in enumerate(table.head):
            shown.add_column(title, justify="right" if index else "left")
        for line in table.lines:
            shown.add_row(*line)
        console.print(shown)
    for note in notes:
        console.print(f"- {note}", markup=False, highlight=False)
