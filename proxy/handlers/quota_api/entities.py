"""Entities of quotas in the form of DescribeClientQuotas and AlterClientQuotas (KIP-546): entity types with
names.

The entity type of client-id prefixes is Redpanda's, not Kafka's. Topics and shadow quotas are Weir's own, and
cannot be expressed in these messages.
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
CLIENT_ID_PREFIX: Final = "client-id-prefix"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, CLIENT_ID_PREFIX, IP)

WireEntity: TypeAlias = Mapping[str, str | None]
"""Entity in the form of Kafka's messages: entity type → name; None instead of a name for the default entity
of that type.
"""

_HASH_ORDER: Final = (CLIENT_ID, USER, IP, CLIENT_ID_PREFIX)
"""Entity types in the iteration order of Java's HashMap. Kafka's error texts list the types in this order."""


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
    """Return Weir's entity in the form that messages have; None for topics, topic prefixes and groups,
    which only Weir knows.
    """
    if (entity.topic, entity.topic_prefix, entity.group) != (None, None, None):
        return None
    client_id = entity.client_id
    client: tuple[str, Name | None] = (
        (CLIENT_ID_PREFIX, client_id.start) if isinstance(client_id, Prefix) else (CLIENT_ID, client_id)
    )
    parts = ((USER, entity.user), client, (IP, entity.ip))
    return {kind: _plain(name) for kind, name in parts if name is not None}


def from_wire(wire: WireEntity) -> Entity:
    """Return Weir's entity for an entity in a client's message, whose types and names must have been checked.

    Addresses have several spellings, such as `2001:DB8::0`; Weir uses one. Raises ValueError for the
    default of prefixes, and for a client-id with a prefix.
    """
    ip = wire.get(IP)
    parts = wire if ip is None else {**wire, IP: canonical_ip(ip)}
    client_id: Name | Prefix | None = _name(parts, CLIENT_ID)
    if CLIENT_ID_PREFIX in wire:
        prefix = wire[CLIENT_ID_PREFIX]
        if prefix is None:
            raise ValueError(f"Weir has no default {CLIENT_ID_PREFIX}: use the default {CLIENT_ID}")
        if client_id is not None:
            raise ValueError(f"Weir has no entity of a {CLIENT_ID} and a {CLIENT_ID_PREFIX}: use two")
        client_id = Prefix(prefix)
    return Entity(user=_name(parts, USER), client_id=client_id, ip=_name(parts, IP))


def shown(wire: WireEntity) -> str:
    """Return the entity in the form in which Kafka's error texts show it (ClientQuotaEntity).

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
