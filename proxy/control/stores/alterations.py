"""Alterations that admins ask for: of quotas, and of replication throttles. Each knows how a store makes it,
and its lines in the audit log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from weir.proxy.logs import audit_logger
from weir.quotas.table.quota_table import keys_of
from weir.quotas.table.replication_entry import Resource
from weir.quotas.table.times import written_time

if TYPE_CHECKING:
    from weir.proxy.control.stores.store import QuotaStore
    from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
    from weir.quotas import QuotaKey, QuotaTable
    from weir.quotas.table.ends import EntryEnd
    from weir.quotas.table.options import Options

audit = audit_logger("weir.audit")

Fields: TypeAlias = Mapping[str, str | int | float | None]
"""Fields of an audit line that tell the value, and its content before and after the alteration."""


@dataclass(frozen=True, slots=True)
class AlterationRequest:
    """The principal and address of the client, and the callback for the result."""

    who: str
    peer: str
    done: Callable[[str | None], None]


class Alteration(Protocol):
    """Changes of stored values."""

    @property
    def event(self) -> str:
        """Text of the alteration's lines in the audit log."""

    async def make(self, store: QuotaStore, ended: Collection[EntryEnd] = ()) -> QuotaTable:
        """Store the changes, and return all stored quotas. `ended`: entries that have ended, and may still
        be stored. Raises StoreError.
        """

    def changed(self, before: QuotaTable) -> Iterator[Fields]:
        """Yield the fields of the audit line for each value that is not the same in the table `before`."""


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Changes of enforced entries, or of shadow entries."""

    changes: Changes
    shadow: bool = False
    options: Options | None = None
    """New options of the altered entries; None if they keep theirs."""

    @property
    def event(self) -> str:
        """Text of the alteration's lines in the audit log."""
        return "quota altered"

    async def make(self, store: QuotaStore, ended: Collection[EntryEnd] = ()) -> QuotaTable:
        """Store the changes, and return all stored quotas. Raises StoreError."""
        entities = {entity for entity, _key in self.changes}
        for entity, is_shadow, _until in ended:
            if entity in entities and is_shadow is self.shadow:  # a new value would end with the old entry
                removed = dict.fromkeys((entity, key) for key in keys_of(entity))
                await store.alter(removed, shadow=is_shadow)
        return await store.alter(self.changes, shadow=self.shadow, options=self.options)

    def changed(self, before: QuotaTable) -> Iterator[Fields]:
        """Yield the entity, the quota, and values and options of each change."""
        values = before.shadow if self.shadow else before.values
        for (entity, key), value in self.changes.items():
            was, options = values.get((entity, key)), before.options_of(entity, shadow=self.shadow)
            fields: dict[str, str | int | float | None] = {
                "entity": str(entity),
                "quota": key.value,
                "before": _shown(was),
                "after": _shown(value),
            }
            if self.shadow:
                fields["mode"] = "shadow"
            if self.options not in (None, options):
                fields["options"] = str(self.options)
            elif was == value:
                continue
            yield fields


@dataclass(frozen=True, slots=True)
class ReplicationAlteration:
    """Changes of replication throttles."""

    changes: ReplicationChanges

    @property
    def event(self) -> str:
        """Text of the alteration's lines in the audit log."""
        return "replication throttle altered"

    async def make(self, store: QuotaStore, ended: Collection[EntryEnd] = ()) -> QuotaTable:  # noqa: ARG002
        """Store the changes, and return all stored quotas. Raises StoreError."""
        return await store.alter_replication(self.changes)

    def changed(self, before: QuotaTable) -> Iterator[Fields]:
        """Yield the broker or topic, the configuration and both values of each change."""
        values = before.replication.values
        for key, value in self.changes.items():
            was = values.get(key)
            if was != value:
                yield {"resource": str(Resource.of(key)), "config": key.name, "before": was, "after": value}


def write_audit(alteration: Alteration, request: AlterationRequest, before: QuotaTable) -> bool:
    """Write an audit line for each changed value; return True if a value has changed."""
    lines = list(alteration.changed(before))
    for fields in lines:
        audit.info(alteration.event, principal=f"User:{request.who}", client=request.peer, **fields)
    return bool(lines)


def write_end(end: EntryEnd, quotas: Mapping[QuotaKey, float]) -> None:
    """Write an audit line for an entry that has ended, with the quotas that it had."""
    audit.info(
        "quota ended",
        entity=str(end.entity),
        shadow=end.is_shadow,
        until=written_time(end.until),
        **{key.value: _shown(value) for key, value in quotas.items()},
    )


def _shown(value: float | None) -> int | float | None:
    return int(value) if value is not None and value.is_integer() else value
