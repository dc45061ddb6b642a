"""Changes of one resource's replication throttles, as AlterConfigs and IncrementalAlterConfigs (KIP-339) ask
for them.

Semantics, error codes and most texts are those of a KRaft controller (ConfigurationControlManager).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from weir.protocol.error_codes import ErrorCode
from weir.protocol.primitives import STRING_BYTES_MAX
from weir.proxy.handlers.quota_api.entities import Refused, invalid
from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges
from weir.quotas.replication.throttles import (
    KEYS_OF,
    RATE_KEYS,
    REPLICAS_KEYS,
    ConfigKey,
    ResourceType,
    check,
)

THROTTLE_NAMES: Final = frozenset({*RATE_KEYS, *REPLICAS_KEYS})
"""Names of the configurations that Weir keeps instead of the brokers."""
TYPES: Final = {kind.value: kind for kind in ResourceType}
"""Kafka's id of a resource type → the type."""
SHOWN_CHARS_MAX: Final = 100
"""Maximum number of characters of a refused value in an error message."""


class OpType(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Op(NamedTuple):
    """One operation of a request on a configuration of a resource."""

    name: str
    operation: int
    """Value of `OpType`, or a number that Kafka does not have."""
    value: str | None


class ResourceId(NamedTuple):
    """A topic or a broker, as a request names it."""

    kind: ResourceType
    name: str

    def key(self, name: str) -> ConfigKey:
        """Return the key of this resource's configuration `name`. Node ids such as 01 become 1, because
        brokers read them as numbers.
        """
        canonical = self.name
        if self.kind is ResourceType.BROKER and canonical.isascii() and canonical.isdecimal():
            canonical = canonical.lstrip("0") or "0"
        return ConfigKey(self.kind, canonical, name)


def stored_names(resource: ResourceId, stored: Mapping[ConfigKey, str]) -> list[str]:
    """Return the names of the throttles that this resource has."""
    return [name for name in KEYS_OF[resource.kind] if resource.key(name) in stored]


def may_change(resource: ResourceId, ops: Sequence[Op], stored: Mapping[ConfigKey, str]) -> bool:
    """Return False if these operations certainly leave the stored values as they are, and are not to be
    refused as duplicates. The values themselves are only compared, so this is quick for long values.
    """
    keys = [resource.key(op.name) for op in ops]
    if len(set(keys)) < len(keys):
        return True
    return any(not _keeps(op, stored.get(key)) for op, key in zip(ops, keys, strict=True))


def _keeps(op: Op, value: str | None) -> bool:
    if op.operation == OpType.DELETE:
        return value is None
    return op.operation == OpType.SET and op.value is not None and op.value == value


def changes_of(
    resource: ResourceId, ops: Sequence[Op], stored: Mapping[ConfigKey, str]
) -> ReplicationChanges:
    """Return the changes that these operations make to the stored values. Raises Refused."""
    changes: dict[ConfigKey, str | None] = {}
    for op in ops:
        key = resource.key(op.name)
        if key in changes:
            raise invalid("Error due to duplicate config keys")
        changes[key] = _new_value(key, op, stored.get(key))
    return {key: value for key, value in changes.items() if stored.get(key) != value}


def _new_value(key: ConfigKey, op: Op, value: str | None) -> str | None:
    """Return the value of a configuration after an operation; None for no value. Raises Refused."""
    if op.operation == OpType.DELETE:
        return None
    if op.value is None:
        raise invalid(f"Null value not supported for : {key.name}")
    if op.operation == OpType.SET:
        return _checked(key, op.value)
    if op.operation not in (OpType.APPEND, OpType.SUBTRACT):
        raise invalid(f"Unknown operation {op.operation} for the configuration {key.name}")
    if key.name not in REPLICAS_KEYS:
        verb = OpType(op.operation).name
        raise _not_valid(f"Can't {verb} to key {key.name} because its type is not LIST.")
    old, named = _parts(value or ""), _parts(op.value)
    if op.operation == OpType.APPEND:
        return _checked(key, ",".join(dict.fromkeys([*old, *named])))
    gone = set(named)
    return _checked(key, ",".join(part for part in old if part not in gone))


def _checked(key: ConfigKey, value: str) -> str:
    """Return the value in the form in which it is stored. Raises Refused if it is not valid: with
    INVALID_REQUEST for a broker's value, with INVALID_CONFIG for a topic's.
    """
    if key.name not in KEYS_OF[key.resource_type]:
        raise _not_valid(f"Unknown {key.resource_type.name.lower()} config name: {key.name}")
    is_topic = key.resource_type is ResourceType.TOPIC
    text = ",".join(_parts(value)) if is_topic else value.strip()
    try:
        check(key, text)
    except ValueError as error:
        shown = value if len(value) <= SHOWN_CHARS_MAX else value[:SHOWN_CHARS_MAX] + "..."
        reason = f"Invalid value {shown} for configuration {key.name}: {error}"
        raise (_not_valid(reason) if is_topic else invalid(reason)) from None
    if len(text) > STRING_BYTES_MAX:
        raise _not_valid(f"{key.name} is longer than {STRING_BYTES_MAX} bytes: no response could describe it")
    return text


def _parts(value: str) -> list[str]:
    """Return the elements of a list. Kafka ignores empty elements of these lists, too."""
    return [part.strip() for part in value.split(",") if part.strip()]


def _not_valid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, text)
