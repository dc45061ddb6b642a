"""A cluster that stores configurations, as a KRaft controller of Kafka 3.9 does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.kfake.cluster import Cluster
from weir.protocol import messages as m
from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.messages import Message
from weir.protocol.values import schema_of

TOPIC, BROKER = 2, 4
"""Types of resources."""
SET, DELETE, APPEND, SUBTRACT = range(4)
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
LISTS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
Resource = tuple[int, str]
Values = dict[str, str | None]
Ops = Sequence[tuple[str, int, str | None]]


@dataclass(kw_only=True)
class ConfigCluster(Cluster):
    """It answers AlterConfigs, IncrementalAlterConfigs and DescribeConfigs."""

    configs: dict[Resource, Values] = field(default_factory=dict)
    sources: dict[tuple[Resource, str], int] = field(default_factory=dict)
    """Sources other than the resource itself (DescribeConfigsResponse.ConfigSource)."""
    denies: set[Resource] = field(default_factory=set)
    """Resources that the client may not alter or describe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handlers |= {
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.alter_configs,
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
        }

    def alter_configs(self, request: Any, *_: int) -> Message:
        kind: Any = response_type(schema_of(type(request)).api_key)
        results = []
        for entry in request.resources:
            resource = entry.resource_type, entry.resource_name
            if isinstance(request, m.AlterConfigsRequest):
                ops = [(config.name, SET, config.value) for config in entry.configs]
                code, values = self._altered(resource, ops, {})
            else:
                ops = [(config.name, config.config_operation, config.value) for config in entry.configs]
                code, values = self._altered(resource, ops, self.configs.get(resource, {}))
            if not code and not request.validate_only:
                self.configs[resource] = values
            results.append(
                kind.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message="no" if code else None,
                    resource_type=resource[0],
                    resource_name=resource[1],
                )
            )
        return kind(responses=results)  # type: ignore[no-any-return]

    def _altered(self, resource: Resource, ops: Ops, stored: Mapping[str, str | None]) -> tuple[int, Values]:
        """Return (error code, new values)."""
        values = dict(stored)
        if resource in self.denies:
            return _denial(resource), values
        if resource[0] == TOPIC and resource[1] not in self.topics:
            return 3, values
        if len({name for name, *_ in ops}) < len(ops) or any(
            op != DELETE and value is None for _, op, value in ops
        ):
            return 42, values
        for name, op, value in ops:
            if op == DELETE:
                values.pop(name, None)
                continue
            new = value or ""
            if op in (APPEND, SUBTRACT):
                if name not in LISTS:
                    return 40, values
                old = [part for part in (values.get(name) or "").split(",") if part]
                named = new.split(",")
                if op == APPEND:
                    new = ",".join([*old, *(part for part in dict.fromkeys(named) if part not in old)])
                else:
                    new = ",".join(part for part in old if part not in named)
            if not _is_valid(resource, name, new):
                return 40, values
            values[name] = new
        return 0, values

    def describe_configs(self, request: m.DescribeConfigsRequest, *_: int) -> Message:
        kind = m.DescribeConfigsResponse
        results = []
        for entry in request.resources:
            resource, wanted = (entry.resource_type, entry.resource_name), entry.configuration_keys
            denied = resource in self.denies
            source = 1 if resource[0] == TOPIC else 2 if resource[1] else 3
            results.append(
                kind.DescribeConfigsResult(
                    error_code=_denial(resource) if denied else 0,
                    error_message="may not" if denied else None,
                    resource_type=resource[0],
                    resource_name=resource[1],
                    configs=[
                        kind.DescribeConfigsResourceResult(
                            name=name, value=value, config_source=self.sources.get((resource, name), source)
                        )
                        for name, value in self.configs.get(resource, {}).items()
                        if not denied and (wanted is None or name in wanted)
                    ],
                )
            )
        return kind(results=results)


def _denial(resource: Resource) -> int:
    return 29 if resource[0] == TOPIC else 31


def _is_valid(resource: Resource, name: str, value: str) -> bool:
    """As Kafka's ConfigDef and ThrottledReplicaListValidator. Levels of loggers (type 8) are not checked."""
    if resource[0] not in (TOPIC, BROKER):
        return True
    if name in LISTS:
        parts = value.split(",")
        every = all(re.fullmatch(r"([0-9]+:[0-9]+)?", part.strip()) for part in parts)
        return resource[0] == TOPIC and (every or value.strip() in ("*", "none"))
    if name in RATES:
        return resource[0] == BROKER and value.isascii() and value.isdecimal() and int(value) < 2**63
    return re.fullmatch(r"-?[0-9]+", value) is not None
