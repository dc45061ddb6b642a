"""The groups that `weir quotas import` stores, before the quotas, which may be theirs."""

from __future__ import annotations

from typing import NamedTuple

from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean
from weir.cli.quotas.show_groups import group_changes
from weir.cli.quotas.source import StoredSource
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import GroupEntry, group_entries, regrouped


class GroupEdits(NamedTuple):
    """The groups of an import, which are not yet stored."""

    groups: list[GroupEntry]
    unused: frozenset[str]
    table: QuotaTable
    """The store's table with these groups."""
    changes: list[str]

    def store(self, source: StoredSource) -> None:
        """Alter the store's groups, unless they are as wanted."""
        if self.changes:
            source.alter_groups(self.groups, self.unused)


def group_edits(before: QuotaTable, wanted: QuotaTable) -> GroupEdits:
    """Return what storing the groups of an imported table alters. `before`: the store's table. Raises
    CommandError if the groups do not go with the store's other groups or its quotas.
    """
    groups, unused = group_entries(wanted.groups), _unused(before, wanted)
    try:
        after = regrouped(before, groups, unused)
    except QuotaFileError as error:
        raise CommandError(clean(error)) from None
    return GroupEdits(groups, unused, after, list(group_changes(before.groups, after.groups)))


def _unused(before: QuotaTable, wanted: QuotaTable) -> frozenset[str]:
    """Return the groups of `before` that the import removes: it leaves them no members, and they have no
    quota, parent or part.
    """
    tables = before, wanted
    used = {entity.group for table in tables for entity, _key in (*table.values, *table.shadow)}
    used.update(*(table.groups.parents.values() for table in tables), wanted.groups.members.values())
    return frozenset(
        name
        for name, parent in wanted.groups.parents.items()
        if name in before.groups.parents and not parent and name not in used
    )
