"""Convert client quotas between Kafka's messages (KIP-546) and Weir's quotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from weir.protocol.messages import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from weir.proxy.control.stores.store import StoreError
from weir.proxy.handlers.quota_api.entities import TYPES, from_wire, on_wire
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.quotas import DEFAULT, Entity
from weir.quotas.table.entities import Prefix
from weir.quotas.table.imported import Imported

VERSION: Final = 0
"""Version of DescribeClientQuotas and AlterClientQuotas that Weir uses. Every broker from 2.6 on has it, and
it can express all client quotas.
"""
EVERYTHING: Final = DescribeClientQuotasRequest(components=[], strict=False)
"""DescribeClientQuotas request that asks for all stored quotas."""
_Request = AlterClientQuotasRequest


def imported(answer: DescribeClientQuotasResponse) -> Imported:
    """Return the quotas in a DescribeClientQuotas response: a table, and the quotas that Weir does not
    support.
    """
    found = Imported()
    for entry in answer.entries or []:
        _take(entry, found)
    return found


def _take(entry: DescribeClientQuotasResponse.EntryData, found: Imported) -> None:
    wire = {part.entity_type: part.entity_name for part in entry.entity}
    where = ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in wire.items())
    unknown = wire.keys() - TYPES
    try:
        entity = from_wire(wire)
    except ValueError as error:
        found.skip(where, None, str(error))
        return
    for value in entry.values:
        if unknown:
            found.skip(where, value.key, f"Weir has no quotas of entity type {min(unknown)}")
        else:
            found.take(where, entity, value.key, value.value)


def as_request(changes: Changes) -> AlterClientQuotasRequest:
    """Return the request that makes brokers store the changes. Raises StoreError for changes that brokers do
    not support.
    """
    entries: dict[Entity, AlterClientQuotasRequest.EntryData] = {}
    for (entity, key), rate in changes.items():
        if entity not in entries:
            entries[entity] = _Request.EntryData(entity=list(_parts(entity)), ops=[])
        operation = _Request.OpData(key=key.value, value=rate or 0.0, remove=rate is None)
        entries[entity].ops.append(operation)
    return AlterClientQuotasRequest(entries=list(entries.values()), validate_only=False)


def _parts(entity: Entity) -> Iterable[AlterClientQuotasRequest.EntityData]:
    """Yield the entity's names as Kafka's entity types and names. Raises StoreError for prefixes and topics,
    which only Weir supports.
    """
    if isinstance(entity.client_id, Prefix) or on_wire(entity) is None:
        raise StoreError(
            f"brokers cannot store a quota of {entity}: prefixes, topics and groups are Weir's own"
        )
    for kind, name in (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip)):
        if name is not None:
            yield _Request.EntityData(entity_type=kind, entity_name=None if name is DEFAULT else name)
