"""Entities as in DescribeClientQuotas and AlterClientQuotas (KIP-546): types with names.

Client-id prefixes, topics and shadow quotas are Weir's own and have no form on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from weir.protocol.error_codes import ErrorCode
from weir.quotas import DEFAULT, Entity
from weir.quotas.table.entities import Default, Name, Prefix
from weir.quotas.table.names import canonical_ip

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)

WireEntity: TypeAlias = Mapping[str, str | None]
"""Entity as in messages: entity type → name; None for the default entity of that type."""

_HASH_ORDER: Final = (CLIENT_ID, USER, IP)
"""Entity types in the order of Java's HashMap, which Kafka's error texts show."""


class Refused(Exception):  # noqa: N818  # an answer of the protocol, not a mistake of ours
    """An error for a request or one of its entries; the text is Kafka's if Kafka has one."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def invalid(text: str) -> Refused:
    """Return the error INVALID_REQUEST with this text."""
    return Refused(ErrorCode.INVALID_REQUEST, text)


def on_wire(entity: Entity) -> WireEntity | None:
    """Return Weir's entity in the form that messages have; None for entities that only Weir knows (client-id
    prefixes, topics).
    """
    if isinstance(entity.client_id, Prefix) or entity.topic is not None:
        return None
    parts = ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
    return {kind: _plain(name) for kind, name in parts if name is not None}


def from_wire(wire: WireEntity) -> Entity:
    """Return Weir's entity for an entity in a client's message, whose types and names must have been checked.

    Addresses have several spellings, such as `2001:DB8::0`; Weir uses one.
    """
    ip = wire.get(IP)
    parts = wire if ip is None else {**wire, IP: canonical_ip(ip)}
    return Entity(user=_name(parts, USER), client_id=_name(parts, CLIENT_ID), ip=_name(parts, IP))


def shown(wire: WireEntity) -> str:
    """Return the text of Kafka's ClientQuotaEntity.

    >>> shown({"user": "alice", "client-id": None})
    'ClientQuotaEntity(entries={client-id=null, user=alice})'
    """
    kinds = [kind for kind in _HASH_ORDER if kind in wire] + [kind for kind in wire if kind not in TYPES]
    inner = ", ".join(f"{kind}={'null' if wire[kind] is None else wire[kind]}" for kind in kinds)
    return f"ClientQuotaEntity(entries={{{inner}}})"


def _plain(name: Name) -> str | None:
    return None if isinstance(name, Default) else name


def _name(wire: WireEntity, kind: str) -> Name | None:
    if kind not in wire:
        return None
    name = wire[kind]
    return DEFAULT if name is None else name
