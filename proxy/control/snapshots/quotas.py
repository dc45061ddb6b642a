"""Records of the quota table: the entries and groups as configured."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import ClientGroup, Quota, QuotaOptions
from weir.proxy.control.stores.records import entity_names
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.table.group_entry import group_entries, group_values
from weir.quotas.table.groups import QuotaGroups
from weir.quotas.table.times import written_time


def read_quotas(table: QuotaTable, q: str, limit: int, offset: int = 0) -> tuple[tuple[Quota, ...], int]:
    """Return `limit` entries whose names contain `q`, without the first `offset` of them, and the number of
    those that follow. A table of 100,000 entries takes 160 ms: call this function in a thread.
    """
    found: list[Quota] = []
    number = 0
    for entity, values, shadow in _entries(table):
        if q.casefold() in str(entity).casefold():
            number += 1
            if number > offset and len(found) < limit:
                found.append(_quota(table, entity, values, shadow=shadow))
    return tuple(found), max(number - offset - len(found), 0)


def read_groups(groups: QuotaGroups, q: str, limit: int, offset: int) -> tuple[tuple[ClientGroup, ...], int]:
    """Return `limit` groups whose name or member contains `q`, without the first `offset` of them, and the
    number of those that follow.
    """
    found = [
        entry
        for entry in group_entries(groups)
        if any(
            q.casefold() in name.casefold() for name in (entry.name, *(each.name for each in entry.members))
        )
    ]
    shown = found[offset : offset + limit]
    records = tuple(msgspec.convert(group_values(entry), ClientGroup) for entry in shown)
    return records, max(len(found) - offset - limit, 0)


def quota_of(table: QuotaTable, entity: Entity, *, shadow: bool) -> Quota:
    """Return the enforced quotas of an entity, or its shadow quotas; without values if it has none."""
    return _quota(table, entity, table.rates_of(entity, shadow=shadow), shadow=shadow)


def _entries(table: QuotaTable) -> Iterator[tuple[Entity, dict[QuotaKey, float], bool]]:
    for entity, values in table.entities():
        yield entity, values, False
    for entity, values in table.shadow_entities():
        yield entity, values, True


def _quota(table: QuotaTable, entity: Entity, values: dict[QuotaKey, float], *, shadow: bool) -> Quota:
    options = table.options_of(entity, shadow=shadow)
    return Quota(
        entity={kind: name and shortened(name) for kind, name in entity_names(entity).items()},
        quotas={key.value: value for key, value in values.items()},
        options=QuotaOptions(
            mode="shadow" if shadow else "enforce",
            pacing=options.pacing,
            scope=options.scope,
            until=None if options.until is None else written_time(options.until),
        ),
    )
