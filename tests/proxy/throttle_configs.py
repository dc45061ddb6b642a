"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs with replication throttles: requests, a session
with Weir in front of a stub broker, and that broker.

The broker is a model of Kafka's config store (a KRaft controller of 3.9): it has topics, and keeps the
configurations that it is given. Its responses are encoded by kio, if kio knows the version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.protocol.kio_side import kio_class
from tests.protocol.plain import kio_bytes
from tests.proxy.client_quotas import Managed
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, framed, head_of, request, request_body_of, split
from weir.protocol import messages as m
from weir.protocol.api import response_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.values import schema_of
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weir.protocol.messages import Message
    from weir.protocol.versions import VersionRange
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
LISTS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RETENTION: Final = "retention.ms"
Resource = tuple[int, str]
Ops = Sequence[tuple[str, int, str | None]]


def key(resource: Resource, name: str) -> ConfigKey:
    """The key of a configuration."""
    return ConfigKey(ResourceType(resource[0]), resource[1], name)


def throttles(values: Mapping[tuple[Resource, str], str]) -> QuotaTable:
    """A table with these throttles alone."""
    return QuotaTable(
        replication=ReplicationThrottles({key(*where): value for where, value in values.items()})
    )


def incremental(changes: Mapping[Resource, Ops], *, validate_only: bool = False) -> Message:
    """An IncrementalAlterConfigs request."""
    kind = m.IncrementalAlterConfigsRequest
    return kind(
        resources=[
            kind.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[
                    kind.AlterableConfig(name=name, config_operation=op, value=value)
                    for name, op, value in ops
                ],
            )
            for resource, ops in changes.items()
        ],
        validate_only=validate_only,
    )


def replacing(
    configs: Mapping[Resource, Mapping[str, str | None]], *, validate_only: bool = False
) -> Message:
    """An AlterConfigs request."""
    kind = m.AlterConfigsRequest
    return kind(
        resources=[
            kind.AlterConfigsResource(
                resource_type=resource[0],
                resource_name=resource[1],
                configs=[kind.AlterableConfig(name=name, value=value) for name, value in its.items()],
            )
            for resource, its in configs.items()
        ],
        validate_only=validate_only,
    )


def describing(
    *resources: Resource, names: list[str] | None = None, synonyms: bool = False
) -> m.DescribeConfigsRequest:
    """A DescribeConfigs request."""
    kind = m.DescribeConfigsRequest
    return kind(
        resources=[
            kind.DescribeConfigsResource(
                resource_type=resource[0], resource_name=resource[1], configuration_keys=names
            )
            for resource in resources
        ],
        include_synonyms=synonyms,
    )


def encoded(message: Message, version: int) -> bytes:
    """The body of a message, as kio encodes it; as Weir does in the versions that kio lacks."""
    schema = schema_of(type(message))
    known = kio_class(schema.api_key, schema.kind, version) is not None
    return kio_bytes(message, version) if known else codec(type(message), version).encode(message)


@dataclass
class ConfigBroker:
    """A broker's config store: it answers Metadata and the three APIs about configurations."""

    topics: tuple[str, ...] = ("orders", "bills")
    configs: dict[Resource, dict[str, str]] = field(default_factory=dict)
    asked: list[Message] = field(default_factory=list)
    """All requests so far."""
    denies: tuple[Resource, ...] = ()
    """Resources that the client may not alter or describe."""

    def answer(self, frame: bytes) -> bytes:
        """Return the frame of the response to a request."""
        head = head_of(frame)
        version = head.version
        message = request_body_of(frame, request_type(head.api_key), version)
        self.asked.append(message)
        body = encoded(self._answer(message), version)
        tags = b"\x00" if response_header_version(head.api_key, version) == 1 else b""
        return framed(head.correlation_id.to_bytes(4, "big") + tags + body)

    def _answer(self, message: Any) -> Message:
        if isinstance(message, m.ApiVersionsRequest):
            keys = [m.ApiVersionsResponse.ApiVersion(api_key=3, max_version=12)]
            return m.ApiVersionsResponse(api_keys=keys)
        if isinstance(message, m.MetadataRequest):
            topic, partition = m.MetadataResponse.MetadataResponseTopic, m.MetadataResponse
            return m.MetadataResponse(
                topics=[
                    topic(
                        name=wanted.name,
                        error_code=0 if wanted.name in self.topics else 3,
                        partitions=[partition.MetadataResponsePartition()] * (wanted.name in self.topics),
                    )
                    for wanted in message.topics or []
                ]
            )
        if isinstance(message, m.DescribeConfigsRequest):
            return self._described(message)
        return self._altered(message)

    def _altered(self, message: Any) -> Message:
        kind: Any = response_type(schema_of(type(message)).api_key)
        results = []
        for entry in message.resources:
            resource = entry.resource_type, entry.resource_name
            if isinstance(message, m.AlterConfigsRequest):
                ops = [(config.name, SET, config.value) for config in entry.configs]
                code, values = self.alter(resource, ops, {})
            else:
                ops = [(config.name, config.config_operation, config.value) for config in entry.configs]
                code, values = self.alter(resource, ops, self.configs.get(resource, {}))
            if not code and not message.validate_only:
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

    def alter(self, resource: Resource, ops: Ops, stored: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        """Return (error code, new values)."""
        values = dict(stored)
        if resource in self.denies:
            return (29 if resource[0] == TOPIC else 31), values
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
            assert value is not None
            new: str | None = value
            if op in (APPEND, SUBTRACT):
                if name not in LISTS:
                    return 40, values
                old = [part for part in values.get(name, "").split(",") if part]
                named = value.split(",")
                if op == APPEND:
                    new = ",".join([*old, *(part for part in dict.fromkeys(named) if part not in old)])
                else:
                    new = ",".join(part for part in old if part not in named)
            assert new is not None
            if not _is_valid(resource, name, new):
                return 40, values
            values[name] = new
        return 0, values

    def _described(self, message: m.DescribeConfigsRequest) -> Message:
        kind = m.DescribeConfigsResponse
        results = []
        for entry in message.resources:
            resource, wanted = (entry.resource_type, entry.resource_name), entry.configuration_keys
            denied = resource in self.denies
            source = 1 if resource[0] == TOPIC else 2 if resource[1] else 3
            results.append(
                kind.DescribeConfigsResult(
                    error_code=29 if denied else 0,
                    error_message="no" if denied else None,
                    resource_type=resource[0],
                    resource_name=resource[1],
                    configs=[
                        kind.DescribeConfigsResourceResult(name=name, value=value, config_source=source)
                        for name, value in self.configs.get(resource, {}).items()
                        if not denied and (wanted is None or name in wanted)
                    ],
                )
            )
        return kind(results=results)


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


class Throttles(Managed):
    """A quota admin that stores replication throttles."""

    def alter_replication(
        self, changes: ReplicationChanges, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        """Store the changes, at once or when the test says so."""

        def stored(reason: str | None) -> None:
            if reason is None:
                self.table = self.table.replication_altered(changes)
            done(reason)

        super().alter_replication(changes, who, peer, stored)


class Front:
    """A client, Weir with a quota admin of the tests, and a broker."""

    def __init__(
        self,
        table: QuotaTable | None = None,
        *,
        broker: ConfigBroker | None = None,
        denies: str | None = None,
        answers: bool = True,
        keeper: Any = "weir",
        protected: tuple[str, ...] = (),
        spoken: Mapping[int, VersionRange] | None = None,
        uplift: bool = False,
    ) -> None:
        self.admin = Throttles(table or QuotaTable(), denies=denies, answers=answers)
        self.broker = broker or ConfigBroker()
        plans = Plans(Counters(), throttles=keeper, uplift=uplift, protected=ProtectedTopics(protected))
        self.session: Connection = new_connection(plans=plans if spoken is None else plans.for_broker(spoken))
        self.session.quota_admin, self.session.client.user = self.admin, "admin"
        self.session.client.peer = "10.9.8.7:4711"
        self.wire = Wire(self.session)

    def run(self) -> None:
        """Let the broker answer, and threads end, until nothing happens any more."""
        while self.wire.to_broker or self.admin.computing:
            frames = split(bytes(self.wire.to_broker))
            self.wire.to_broker.clear()
            for frame in frames:
                self.wire.feed(0, broker=self.broker.answer(frame))
            while self.admin.computing:
                self.wire.wake(0, self.admin.computing.pop())

    def send(self, frame: bytes) -> bytes:
        """The client sends a request; return the bytes that it gets."""
        self.wire.feed(0, client=frame)
        self.run()
        found = bytes(self.wire.to_client)
        self.wire.to_client.clear()
        return found

    def ask(self, message: Message, version: int) -> Any:
        """The client asks; return the response."""
        api_key = schema_of(type(message)).api_key
        return body_of(self.send(request(message, version)), response_type(api_key), version)

    def alter(self, message: Message, version: int = 1) -> dict[Resource, int]:
        """Alter configurations; return the error code of each resource."""
        response = self.ask(message, version)
        found = {(entry.resource_type, entry.resource_name): entry.error_code for entry in response.responses}
        assert len(found) == len(response.responses), "a resource has two results"
        for entry in response.responses:
            assert (entry.error_message is None) == (entry.error_code == 0), entry
        return found

    @property
    def stored(self) -> dict[tuple[Resource, str], str]:
        """The throttles that Weir has."""
        return {
            ((at.resource_type.value, at.resource_name), at.name): value
            for at, value in self.admin.table.replication.values.items()
        }
