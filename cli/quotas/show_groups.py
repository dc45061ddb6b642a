"""Format groups of clients for the `weir quotas` commands, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import click

from weir.cli.quotas.show import clean, columns
from weir.quotas.table.group_entry import group_entries, group_values
from weir.quotas.table.groups import QuotaGroups

GroupJson: TypeAlias = dict[str, str | list[str]]
"""A `[[group]]` of a quota file."""


def groups_json(groups: QuotaGroups) -> list[GroupJson]:
    """Return one JSON object per group."""
    return list(map(group_values, group_entries(groups)))


def show_groups(groups: QuotaGroups) -> None:
    """Print a table with a line per group."""
    rows = [
        (clean(entry.name), clean(entry.parent or "-"), clean(", ".join(map(str, entry.members))))
        for entry in group_entries(groups)
    ]
    click.echo("\n".join(columns([("group", "part of", "members"), *rows])))


def group_changes(before: QuotaGroups, after: QuotaGroups) -> Iterator[str]:
    """Yield one line per changed member, and per changed or new group."""
    for group in {**before.parents, **after.parents}:
        was, now = before.parents.get(group), after.parents.get(group)
        if was != now:
            told = ("none" if parent is None else parent or "no parent" for parent in (was, now))
            yield clean(f"group {group}: {' -> '.join(told)}")
    for member in {**before.members, **after.members}:
        was, now = before.members.get(member), after.members.get(member)
        if was != now:
            yield clean(f"{member}: group {was or 'none'} -> {now or 'none'}")
