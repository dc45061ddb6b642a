"""Replication throttles (KIP-73) as records of the quota topic: one record per broker or topic, with all its
throttles.

    key     {"replication":{"broker":"1"}}
    value   {"replication":{"leader.replication.throttled.rate":"10000000"},"version":1}

Spelling and versions are as in `records`. A null broker stands for all brokers without a value of their own.
Weirs before these records skip them, because the key has no entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from weir.protocol.sasl import NAME_BYTES_MAX
from weir.proxy.control.stores.record import VERSION, ProducerRecord, RecordError, version_of
from weir.quotas.replication.throttles import (
    NO_THROTTLES,
    ConfigKey,
    ReplicationThrottles,
    ResourceType,
    check,
)
from weir.quotas.table.replication_entry import Resource

RESOURCES_MAX: Final = 100_000
"""Maximum number of brokers and topics with throttles."""
PREFIX: Final = b'{"replication":'
"""Start of the key of each record of replication throttles, and of no other record."""

_KINDS: Final = {"broker": ResourceType.BROKER, "topic": ResourceType.TOPIC}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class _ThrottleRecordKey(msgspec.Struct, forbid_unknown_fields=True):
    replication: dict[str, str | None]


class _ThrottleRecordValue(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    replication: dict[str, str]


_KEY_DECODER: Final = msgspec.json.Decoder(_ThrottleRecordKey)
_VALUE_DECODER: Final = msgspec.json.Decoder(_ThrottleRecordValue)


def write(resource: Resource, values: Mapping[str, str]) -> ProducerRecord:
    """Return a record that sets all throttles of a broker or topic; without throttles, a record without a
    value, which removes them. Raises RecordError for a name that is not valid Unicode.
    """
    key = _ThrottleRecordKey({_NAMES[resource.kind]: resource.name or None})
    try:
        encoded = _ENCODER.encode(key)
        return ProducerRecord(
            encoded, _ENCODER.encode(_ThrottleRecordValue(VERSION, dict(values))) if values else None
        )
    except UnicodeEncodeError:
        raise RecordError(f"{str(resource)!a} is not valid Unicode: rename it") from None


def read_key(key: bytes) -> Resource:
    """Return the broker or topic in a record's key. Raises RecordError if the key is not one that Weir
    writes.
    """
    try:
        named = _KEY_DECODER.decode(key).replication
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RecordError(f"its key is none of Weir's: {error}") from None
    if len(named) != 1 or not named.keys() <= _KINDS.keys():
        raise RecordError(f"its key has throttles of {', '.join(sorted(named))[:60]!r}")
    ((kind, name),) = named.items()
    if name == "" or (name is None and kind == "topic"):
        raise RecordError(f"its key has no name of a {kind}")
    if name is not None and len(name.encode()) > NAME_BYTES_MAX:
        raise RecordError(f"its key has a name of more than {NAME_BYTES_MAX} bytes")
    resource = Resource(_KINDS[kind], name or "")
    if write(resource, {}).key != key:  # a record that removes the throttles would have another key
        raise RecordError("its key is not spelled as Weir spells it: sorted, no spaces, no needless escapes")
    return resource


def read_value(resource: Resource, value: bytes) -> dict[str, str]:
    """Return the throttles (name of the configuration → value) in a record's value. Raises RecordError if
    Weir cannot read the value.
    """
    try:
        version_of(value)
        found = _VALUE_DECODER.decode(value).replication
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"its value is none of Weir's: {error}") from None
    if not found:
        raise RecordError("it has no throttles")
    _check(resource, found)
    return found


def _check(resource: Resource, values: Mapping[str, str]) -> None:
    """Raise RecordError if a throttle does not exist for the resource, or has another form."""
    for name, value in values.items():
        try:
            check(ConfigKey(*resource, name), value)
        except ValueError as error:
            raise RecordError(f"{name[:60]} of {resource} {error}"[:200]) from None


class StoredThrottles:
    """The replication throttles that result from the records read so far, in which a later record replaces an
    earlier one of the same key.
    """

    def __init__(self) -> None:
        self._values: dict[Resource, dict[str, str]] = {}
        self._throttles: ReplicationThrottles | None = NO_THROTTLES
        """Throttles as in `_values`; None after a record, until they are asked for."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Replace the throttles of the record's broker or topic by those in its value. Raises RecordError,
        and changes nothing, if the record cannot be used.
        """
        resource = read_key(key)
        values = {} if value is None else read_value(resource, value)
        if values and resource not in self._values and len(self._values) >= RESOURCES_MAX:
            raise RecordError(f"there are throttles of {RESOURCES_MAX} brokers and topics already")
        self._values.pop(resource, None)
        if values:
            self._values[resource] = values
        self._throttles = None

    def throttles(self) -> ReplicationThrottles:
        """Return all throttles."""
        if self._throttles is None:
            self._throttles = ReplicationThrottles(
                {
                    ConfigKey(*resource, name): value
                    for resource, values in self._values.items()
                    for name, value in values.items()
                }
            )
        return self._throttles


def alteration(
    throttles: ReplicationThrottles, changes: Mapping[ConfigKey, str | None]
) -> list[ProducerRecord]:
    """Return the records that make these changes to the throttles: one for each altered broker or topic, with
    all its throttles. Raises RecordError for a throttle that does not exist, or has another form.
    """
    after: dict[Resource, dict[str, str]] = {Resource.of(key): {} for key in changes}
    for key, value in {**throttles.values, **changes}.items():
        resource = Resource.of(key)
        if resource in after and value is not None:
            after[resource][key.name] = value
    for resource, values in after.items():
        _check(resource, values)
    return [write(resource, values) for resource, values in after.items()]
