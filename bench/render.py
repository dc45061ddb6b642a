"""Format tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

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
