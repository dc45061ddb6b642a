"""`weir quotas list --diff`: the changes from one quota file to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from weir.cli.exits import FAILED, CommandError
from weir.cli.quotas import read_back
from weir.cli.quotas.show import (
    ENFORCED,
    SHADOW,
    ChangeEntry,
    EntityJson,
    QuotaEdit,
    change_entry,
    clean,
    compare,
    echo_json,
    entity_json,
    show_changes,
)
from weir.cli.quotas.show_groups import group_changes
from weir.cli.quotas.show_replication import ReplicationChange, resource_json, show_replication_changes
from weir.quotas import Entity, QuotaTable
from weir.quotas.table.replication_entry import Resource


class OptionsChange(msgspec.Struct):
    """JSON object with the options of an entry (pacing, scope) in both files, as text; "" for none."""

    entity: EntityJson
    mode: str
    before: str
    after: str


class Differences(msgspec.Struct):
    """The JSON object that `weir quotas list --diff FILE --json` prints."""

    old: str
    new: str
    changes: list[ChangeEntry]
    options: list[OptionsChange]
    replication: list[ReplicationChange]
    groups: list[str] = []
    """Changes of groups and of their members, as text."""


def show_differences(old: Path, new: str, after: QuotaTable, *, as_json: bool) -> None:
    """Print the changes from the quotas in the file `old` to `after`, the quotas of the source `new`. The
    order of entries and comments do not count. Exit code: 0 if the quotas are equal, 1 if they differ.
    """
    before = _table(old)
    changes = list(_changes(before, after))
    options = list(_options(before, after))
    replication = list(_replication(before, after))
    groups = list(group_changes(before.groups, after.groups))
    if as_json:
        told = [each for _entity, each in options]
        echo_json(Differences(str(old), new, list(map(change_entry, changes)), told, replication, groups))
    else:
        show_changes(changes)
        for entity, each in options:
            click.echo(f"{clean(entity)}: {each.before or 'no options'} -> {each.after or 'no options'}")
        show_replication_changes(replication)
        click.echo("".join(f"{line}\n" for line in groups), nl=False)
        click.echo(_counts(changes), err=True)
    if changes or options or replication or groups:
        click.get_current_context().exit(FAILED)


def _table(file: Path) -> QuotaTable:
    try:
        return read_back.read(file).table
    except read_back.ReadBackError as error:
        raise CommandError(clean(error)) from None


def _changes(before: QuotaTable, after: QuotaTable) -> Iterator[QuotaEdit]:
    for mode, was, now in (
        (ENFORCED, before.values, after.values),
        (SHADOW, before.shadow, after.shadow),
    ):
        wanted = {quota: now.get(quota) for quota in {**was, **now}}
        yield from (change for change in compare(was, wanted, mode) if change.before != change.after)


def _options(before: QuotaTable, after: QuotaTable) -> Iterator[tuple[Entity, OptionsChange]]:
    """Yield the changed options of entities that have an entry in both files."""
    for mode in (ENFORCED, SHADOW):
        is_shadow = mode == SHADOW
        was, now = (table.shadow if is_shadow else table.values for table in (before, after))
        present = {entity for entity, _key in now}
        for entity in dict.fromkeys(entity for entity, _key in was):
            old, new = (str(table.options_of(entity, shadow=is_shadow)) for table in (before, after))
            if old != new and entity in present:
                yield entity, OptionsChange(entity_json(entity), mode, old, new)


def _replication(before: QuotaTable, after: QuotaTable) -> Iterator[ReplicationChange]:
    was, now = before.replication.values, after.replication.values
    for key in {**was, **now}:
        if was.get(key) != now.get(key):
            yield ReplicationChange(resource_json(Resource.of(key)), key.name, was.get(key), now.get(key))


def _counts(changes: list[QuotaEdit]) -> str:
    """Return the number of values of each kind of change as text."""
    kinds = Counter(map(_kind, changes))
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "no value differs"


def _kind(change: QuotaEdit) -> str:
    if change.before is None or change.after is None:
        return "added" if change.before is None else "removed"
    return "raised" if change.after > change.before else "lowered"
