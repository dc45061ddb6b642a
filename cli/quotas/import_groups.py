"""The groups that `weir quotas import` stores, before the quotas, which may be theirs."""

from __future__ import annotations

from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean
from weir.cli.quotas.show_groups import group_changes
from weir.cli.quotas.source import StoredSource
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import group_entries, regrouped


def apply(
    before: QuotaTable, wanted: QuotaTable, source: StoredSource, *, dry_run: bool
) -> tuple[QuotaTable, list[str]]:
    """Store the groups of an imported table. `before`: the store's table. Return it with these groups, and
    the changes. Raises CommandError if the groups do not go with the store's other groups or its quotas.
    """
    groups, unused = group_entries(wanted.groups), _unused(before, wanted)
    try:
        after = regrouped(before, groups, unused)
    except QuotaFileError as error:
        raise CommandError(clean(error)) from None
    changes = list(group_changes(before.groups, after.groups))
    if changes and not dry_run:
        source.alter_groups(groups, unused)
    return after, changes


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
