"""Records of the quota table: the entries as configured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.records import Quota, QuotaOptions
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.table.entities import Name

CLIENT_ID_PREFIX: Final = "client-id-prefix"


def read_quotas(table: QuotaTable, q: str, limit: int) -> tuple[tuple[Quota, ...], int]:
    """Return the first `limit` entries whose names contain `q`, and the number of the others. A table of
    100,000 entries takes 160 ms: call this function in a thread.
    """
    found: list[Quota] = []
    number = 0
    for entity, values, shadow in _entries(table):
        if q.casefold() in str(entity).casefold():
            number += 1
            if len(found) < limit:
                found.append(_quota(table, entity, values, shadow=shadow))
    return tuple(found), number - len(found)


def quota_of(table: QuotaTable, entity: Entity) -> Quota:
    """Return the enforced quotas of an entity; without values if it has none."""
    keys = {key: value for (its, key), value in table.values.items() if its == entity}
    return _quota(table, entity, keys, shadow=False)


def _entries(table: QuotaTable) -> Iterator[tuple[Entity, dict[QuotaKey, float], bool]]:
    for entity, values in table.entities():
        yield entity, values, False
    for entity, values in table.shadow_entities():
        yield entity, values, True


def _quota(table: QuotaTable, entity: Entity, values: dict[QuotaKey, float], *, shadow: bool) -> Quota:
    options = table.options_of(entity, shadow=shadow)
    return Quota(
        entity=_names(entity),
        quotas={key.value: value for key, value in values.items()},
        options=QuotaOptions(
            mode="shadow" if shadow else "enforce",
            pacing=None if options.pacing is None else options.pacing.value,
            scope=options.scope.value,
        ),
    )


def _names(entity: Entity) -> dict[str, str | None]:
    """Return the names of an entity by type, None for the default."""
    prefix = entity.client_id.start if isinstance(entity.client_id, Prefix) else None
    client_id = None if isinstance(entity.client_id, Prefix) else entity.client_id
    parts: list[tuple[str, Name | None]] = [
        ("user", entity.user),
        ("client-id", client_id),
        (CLIENT_ID_PREFIX, prefix),
        ("ip", entity.ip),
        ("topic", entity.topic),
        ("group", entity.group),
    ]
    return {kind: None if name is DEFAULT else shortened(name) for kind, name in parts if name is not None}
