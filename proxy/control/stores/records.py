"""Quotas as records of a compacted topic: one record per entity and mode, with all quotas of the entity.

    key     {"entity":{"client-id":null,"user":"alice"},"mode":"enforce"}
    value   {"quotas":{"producer_byte_rate":1048576.0},"version":1}

Both are JSON, sorted and without spaces, so that an entity has exactly one key. A null name is the default
entity, as in Kafka's protocol (KIP-546); `client-id-prefix` and `topic` are Weir's own. The mode is `enforce`
or `shadow`. The options of an entry are beside its quotas: `"pacing":"smooth"`, `"scope":"cluster"`,
`"until":"2026-12-01T06:00:00Z"`. A record without a value removes the quotas of its entity and mode.
`replication_records` has the records of replication throttles, `group_records` those of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from weir.protocol.sasl import NAME_BYTES_MAX
from weir.proxy.control.stores import group_records, replication_records
from weir.proxy.control.stores.group_records import StoredGroups
from weir.proxy.control.stores.record import VERSION, ProducerRecord, RecordError, version_of
from weir.proxy.control.stores.replication_records import StoredThrottles
from weir.proxy.handlers.quota_api.quota_admin import Changes
from weir.quotas import Entity, QuotaTable
from weir.quotas.replication.throttles import ConfigKey
from weir.quotas.table.entities import DEFAULT, Name, Prefix
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue, changed
from weir.quotas.table.quota_entry import least, most
from weir.quotas.table.quota_table import NO_BUDGETS, Quota, QuotaKey, has_budgets, keys_of
from weir.quotas.table.times import in_utc

ENTITIES_MAX: Final = 500_000
ENFORCE: Final = "enforce"
SHADOW: Final = "shadow"

_WITHOUT_DEFAULT: Final = ("client-id-prefix", "topic", "group", "topic-prefix")
_KEYS: Final = {key.value: key for key in QuotaKey}
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class EntityMode(NamedTuple):
    """Entity and mode (enforced or shadow) that a record is about: the decoded key of the record."""

    entity: Entity
    shadow: bool


class _QuotaRecordKey(msgspec.Struct, forbid_unknown_fields=True):
    entity: dict[str, str | None]
    mode: str


class _QuotaRecordValue(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    quotas: dict[str, float]
    pacing: Pacing | None = None
    scope: Scope = Scope.BROKER
    until: datetime | None = None


class EntryValues(NamedTuple):
    """Quotas and options in the decoded value of a record."""

    quotas: dict[QuotaKey, float]
    options: Options = PLAIN


_KEY_DECODER: Final = msgspec.json.Decoder(_QuotaRecordKey)
_VALUE_DECODER: Final = msgspec.json.Decoder(_QuotaRecordValue)


def write(slot: EntityMode, quotas: Mapping[QuotaKey, float], options: Options = PLAIN) -> ProducerRecord:
    """Return a record that sets all quotas and options of an entity and mode; without quotas, a record
    without a value, which removes them. Raises RecordError for a name that is not valid Unicode.
    """
    key = {"entity": entity_names(slot.entity), "mode": SHADOW if slot.shadow else ENFORCE}
    value = _QuotaRecordValue(VERSION, {quota.value: rate for quota, rate in quotas.items()}, *options)
    try:
        return ProducerRecord(_ENCODER.encode(key), _ENCODER.encode(value) if quotas else None)
    except UnicodeEncodeError:
        raise RecordError(f"{str(slot.entity)!a} is not valid Unicode: rename it") from None


def entity_names(entity: Entity) -> dict[str, str | None]:
    """Return the names of an entity by type (`user`, `client-id`, …), None for the default."""
    client_id = entity.client_id
    if isinstance(client_id, Prefix):
        client_part: dict[str, Name | None] = {"client-id-prefix": client_id.start}
    else:
        client_part = {"client-id": client_id}
    named = {
        "user": entity.user,
        **client_part,
        "ip": entity.ip,
        "topic": entity.topic,
        "topic-prefix": entity.topic_prefix,
        "group": entity.group,
    }
    return {kind: None if name is DEFAULT else name for kind, name in named.items() if name is not None}


def read_key(key: bytes | None) -> EntityMode:
    """Return the entity and mode in a record's key. Raises RecordError if the key is not one that Weir
    writes.
    """
    try:
        found = _KEY_DECODER.decode(key or b"")
        entity = entity_of(found.entity)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecordError(f"its key is none of Weir's: {error}") from None
    if found.mode not in (ENFORCE, SHADOW):
        raise RecordError(f"its mode is {found.mode[:60]!r}")
    slot = EntityMode(entity, found.mode == SHADOW)
    if write(slot, {}).key != key:  # a record that removes the entity would have another key
        raise RecordError("its key is not spelled as Weir spells it: sorted, no spaces, no needless escapes")
    return slot


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """Return the entity with these names by type, the inverse of `entity_names`. Raises
    ValueError if there is no such entity.
    """
    unknown = parts.keys() - {"user", "client-id", "ip", *_WITHOUT_DEFAULT}
    if unknown or {"client-id", "client-id-prefix"} <= parts.keys():
        raise ValueError(f"an entity of {', '.join(sorted(parts))[:60]!r}")
    prefix, *alone = (parts.get(kind) for kind in _WITHOUT_DEFAULT)
    if any(kind in parts and parts[kind] is None for kind in _WITHOUT_DEFAULT):
        raise ValueError("a prefix, a topic and a group have no default")
    if any(name is not None and len(name.encode()) > NAME_BYTES_MAX for name in parts.values()):
        raise ValueError(f"a name of more than {NAME_BYTES_MAX} bytes")
    names = {kind: DEFAULT if name is None else name for kind, name in parts.items()}
    client_id = Prefix(prefix) if prefix is not None else names.get("client-id")
    return Entity(names.get("user"), client_id, names.get("ip"), *alone)


def read_value(value: bytes) -> EntryValues:
    """Return the quotas and options in a record's value. Raises RecordError if Weir cannot read the value."""
    try:
        version_of(value)
        read = _VALUE_DECODER.decode(value)
        found = {_KEYS[key]: rate for key, rate in read.quotas.items()}
    except KeyError as error:
        raise RecordError(f"it has the quota {str(error)[:60]}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"its value is none of Weir's: {error}") from None
    if not found or not all(least(key) <= rate <= float(most(key)) for key, rate in found.items()):
        raise RecordError("it has no rates, or one outside its bounds")
    try:
        until = None if read.until is None else in_utc(read.until)
    except ValueError as error:
        raise RecordError(f"its end must be {error}") from None
    return EntryValues(found, Options(read.pacing, read.scope, until))


class StoredQuotas:
    """The quotas, groups and replication throttles that result from the records read so far, in which a later
    record replaces an earlier one of the same key.
    """

    def __init__(self) -> None:
        self._keys: dict[EntityMode, tuple[QuotaKey, ...]] = {}
        self._changes: tuple[dict[Quota, QuotaValue | None], ...] = ({}, {})
        """Values by quota since `_table` was made: first those of enforced entries, then those of shadow
        entries; None for removed ones.
        """
        self._table = QuotaTable()
        self._replication = StoredThrottles()
        self._groups = StoredGroups()

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Replace the quotas of the record's entity and mode, the throttles of its broker or topic, or the
        members of its group, by those in its value. Raises RecordError, and changes nothing, if the record
        cannot be used.
        """
        if key is not None and key.startswith(replication_records.PREFIX):
            self._replication.apply(key, value)
            return
        if key is not None and key.startswith(group_records.PREFIX):
            self._groups.apply(key, value)
            return
        slot = read_key(key)
        quotas, options = EntryValues({}) if value is None else read_value(value)
        misplaced = quotas.keys() - set(keys_of(slot.entity))
        if misplaced:
            raise RecordError(f"it has {min(key.value for key in misplaced)} for {slot.entity}"[:200])
        if not has_budgets(slot.entity) and options[:2] != PLAIN[:2]:
            raise RecordError(f"it is for {slot.entity}, and {NO_BUDGETS}"[:200])
        if quotas and slot not in self._keys and len(self._keys) >= ENTITIES_MAX:
            raise RecordError(f"there are {ENTITIES_MAX} entities already")
        changes = self._changes[slot.shadow]
        changes |= dict.fromkeys((slot.entity, quota_key) for quota_key in self._keys.pop(slot, ()))
        if quotas:
            self._keys[slot] = tuple(quotas)
        for quota_key, rate in quotas.items():
            changes[slot.entity, quota_key] = QuotaValue(rate, options)

    def table(self) -> QuotaTable:
        """Return all quotas, groups and replication throttles as a table, which was made from the table of
        the former call: the same table if no value has changed.
        """
        (enforced, shadow), self._changes = self._changes, ({}, {})
        former, throttles = self._table.replication.values, self._replication.throttles().values
        replication: dict[ConfigKey, str | None] = {**dict.fromkeys(former), **throttles}
        before, groups = self._table.groups, self._groups.groups()
        members, parents = changed(before.members, groups.members), changed(before.parents, groups.parents)
        self._table = self._table.applied(QuotaDelta(enforced, shadow, replication, members, parents))
        return self._table


def alteration(
    table: QuotaTable, changes: Changes, *, shadow: bool = False, options: Options | None = None
) -> list[ProducerRecord]:
    """Return the records that make these changes to the table: one for each altered entity, with all its
    quotas.

    The altered entries get `options`; None keeps the options that they have. Raises RecordError for a name
    that is not valid Unicode.
    """
    entities = dict.fromkeys(entity for entity, _key in changes)
    after = {entity: table.rates_of(entity, shadow=shadow) for entity in entities}
    for (entity, key), rate in changes.items():
        if rate is None:
            after[entity].pop(key, None)
        else:
            after[entity][key] = rate
    return [
        write(
            EntityMode(entity, shadow),
            quotas,
            table.options_of(entity, shadow=shadow) if options is None else options,
        )
        for entity, quotas in after.items()
    ]
