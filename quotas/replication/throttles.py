"""The configuration of replication throttles (KIP-73), under Kafka's names.

A broker has a rate for each role: `leader.replication.throttled.rate` for what it sends to followers,
`follower.replication.throttled.rate` for what it fetches. A topic has a list of replicas for each role,
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`: `PARTITION:BROKER,...`,
`*` for all replicas, `none` or nothing for no replica. Only listed replicas are throttled.

>>> key = ConfigKey(ResourceType.TOPIC, "orders", Role.LEADER.replicas_key)
>>> throttles = ReplicationThrottles({key: "0:1,1:2"})
>>> throttles.is_listed(Role.LEADER, "orders", 0, 1), throttles.is_listed(Role.LEADER, "orders", 0, 2)
(True, False)
"""

from __future__ import annotations

import math
import re
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE_MAX: Final = 2**63 - 1
"""Maximum of a rate in bytes/s, which Kafka stores as a long."""
NODE_ID_MAX: Final = 2**31 - 1
"""Maximum of a broker's node id, which Kafka stores as an int."""
ALL: Final = "*"
NONE: Final = "none"
_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})", re.ASCII)


class Role(Enum):
    """Role of a broker in the replication of a partition."""

    LEADER = "leader"
    """The broker sends the partition's records to followers."""
    FOLLOWER = "follower"
    """The broker fetches the partition's records from the leader."""

    @property
    def rate_key(self) -> str:
        """Name of the broker configuration with the role's rate (bytes/s)."""
        return f"{self.value}.replication.throttled.rate"

    @property
    def replicas_key(self) -> str:
        """Name of the topic configuration with the role's throttled replicas."""
        return f"{self.value}.replication.throttled.replicas"


class ResourceType(Enum):
    """Type of a resource that has configurations; the values are Kafka's ids (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4


RATE_KEYS: Final = {role.rate_key: role for role in Role}
REPLICAS_KEYS: Final = {role.replicas_key: role for role in Role}
KEYS_OF: Final[Mapping[ResourceType, Mapping[str, Role]]] = {
    ResourceType.BROKER: RATE_KEYS,
    ResourceType.TOPIC: REPLICAS_KEYS,
}
"""Resource type → name of each configuration that it can have → role."""


class ConfigKey(NamedTuple):
    """One configuration: a resource, and the name of the configuration."""

    resource_type: ResourceType
    resource_name: str
    """Name of the topic, or node id of the broker in decimal; "" stands for all brokers without a value of
    their own, as in Kafka's protocol.
    """
    name: str


class Replicas(NamedTuple):
    """The replicas in a list of throttled replicas."""

    everything: bool = False
    """True if all replicas of the topic are listed."""
    listed: frozenset[tuple[int, int]] = frozenset()
    """Pairs (partition, node id of the broker)."""

    def has(self, partition: int, node_id: int) -> bool:
        """Return True if this broker's replica of the partition is listed."""
        return self.everything or (partition, node_id) in self.listed

    @classmethod
    def parse(cls, text: str) -> Replicas:
        """Return the replicas in `PARTITION:BROKER,...`, `*`, `none` or "". Raises ValueError."""
        text = text.strip()
        if text in ("", NONE):
            return NO_REPLICAS
        if text == ALL:
            return cls(everything=True)
        matches = [_REPLICA.fullmatch(part.strip()) for part in text.split(",")]
        if not all(matches):
            raise ValueError(f'must be PARTITION:BROKER[,PARTITION:BROKER...], "{ALL}" or "{NONE}"')
        return cls(listed=frozenset((int(match[1]), int(match[2])) for match in matches if match))


NO_REPLICAS: Final = Replicas()


def parse_rate(text: str) -> int:
    """Return a rate in bytes/s. Raises ValueError."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) or int(text) > RATE_MAX:
        raise ValueError(f"must be a whole number of bytes/s from 0 to {RATE_MAX}")
    return int(text)


def check(key: ConfigKey, value: str) -> None:
    """Raise ValueError if this configuration does not exist for the resource, or has another form."""
    if key.name not in KEYS_OF[key.resource_type]:
        raise ValueError(f"{key.name} is no replication throttle of a {key.resource_type.name.lower()}")
    if key.resource_type is ResourceType.TOPIC:
        Replicas.parse(value)
        return
    if key.resource_name and not _is_node_id(key.resource_name):
        raise ValueError(f"{key.resource_name!r} is no node id")
    parse_rate(value)


def _is_node_id(text: str) -> bool:
    return re.fullmatch(r"0|[1-9][0-9]{0,9}", text, re.ASCII) is not None and int(text) <= NODE_ID_MAX


class ReplicationThrottles:
    """An immutable set of replication throttles: configuration → value, as texts in Kafka's form. Sets with
    the same values are equal.
    """

    __slots__ = ("_rates", "_replicas", "_values", "topics")

    def __init__(self, values: Mapping[ConfigKey, str] | None = None) -> None:
        """Begin with these values. Raises ValueError for a value that `check` refuses."""
        self._values = dict(values or {})
        self._rates: dict[tuple[Role, str], int] = {}
        self._replicas: dict[Role, dict[str, Replicas]] = {role: {} for role in Role}
        for key, value in self._values.items():
            try:
                check(key, value)
            except ValueError as error:
                raise ValueError(f"{key.name} of {key.resource_name or 'all brokers'} {error}") from None
            role = KEYS_OF[key.resource_type][key.name]
            if key.resource_type is ResourceType.BROKER:
                self._rates[role, key.resource_name] = parse_rate(value)
            elif (replicas := Replicas.parse(value)) != NO_REPLICAS:
                self._replicas[role][key.resource_name] = replicas
        self.topics: frozenset[str] = frozenset().union(*self._replicas.values())
        """Topics that have a throttled replica in either role."""

    @property
    def values(self) -> Mapping[ConfigKey, str]:
        """Configuration → value; read-only."""
        return MappingProxyType(self._values)

    def rate(self, role: Role, node_id: int) -> float:
        """Return the rate of a broker in bytes/s: its own, else that of all brokers, else infinity."""
        own = self._rates.get((role, str(node_id)))
        return float(self._rates.get((role, ""), math.inf) if own is None else own)

    def is_listed(self, role: Role, topic: str, partition: int, node_id: int) -> bool:
        """Return True if this broker's replica of the partition is throttled in this role."""
        replicas = self._replicas[role].get(topic)
        return replicas is not None and replicas.has(partition, node_id)

    def same_lists(self, other: ReplicationThrottles) -> bool:
        """Return True if both list the same replicas; their rates may differ."""
        return self._replicas == other._replicas

    def altered(self, changes: Mapping[ConfigKey, str | None]) -> ReplicationThrottles:
        """Return the throttles with changed values; None removes a value. Raises ValueError."""
        merged = {**self._values, **changes}
        return ReplicationThrottles({key: value for key, value in merged.items() if value is not None})

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """Return True if both have the same values."""
        return self._values == other._values if isinstance(other, ReplicationThrottles) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        """Return a text with all values, for test failures."""
        return f"ReplicationThrottles({self._values!r})"


NO_THROTTLES: Final = ReplicationThrottles()
