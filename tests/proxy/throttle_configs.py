"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs with replication throttles: requests, a
connection with Weir in front of a cluster that stores them. kio encodes its responses, if it knows the
version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.kfake.configs import ConfigCluster, Ops, Resource
from tests.kfake.direct import Client
from tests.protocol.kio_side import kio_class
from tests.protocol.plain import kio_bytes
from tests.proxy.client_quotas import Managed
from tests.proxy.wire import new_connection
from tests.wire.frames import body_of, request, response_frame
from weir.protocol import messages as m
from weir.protocol.codec import codec, response_type
from weir.protocol.messages import Message
from weir.protocol.values import schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.protected_topics.protected_topics import ProtectedTopics
from weir.proxy.handlers.quota_api.quota_admin import ReplicationChanges
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType

RETENTION: Final = "retention.ms"


def key(resource: Resource, name: str) -> ConfigKey:
    return ConfigKey(ResourceType(resource[0]), resource[1], name)


def throttles(values: Mapping[tuple[Resource, str], str]) -> QuotaTable:
    return QuotaTable(
        replication=ReplicationThrottles({key(*where): value for where, value in values.items()})
    )


def incremental(changes: Mapping[Resource, Ops], *, validate_only: bool = False) -> Message:
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


def config_cluster(*topics: str, **fields: Any) -> ConfigCluster:
    """A cluster with the topics "orders" and "bills", or with others, whose responses kio encodes."""

    def encode(message: Message, version: int, correlation_id: int) -> bytes:
        api_key = schema_of(type(message)).api_key
        return response_frame(api_key, version, encoded(message, version), correlation_id)

    cluster = ConfigCluster(encode=encode, **fields)
    for topic in topics or ("orders", "bills"):
        cluster.add(topic)
    return cluster


class Throttles(Managed):
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
        broker: ConfigCluster | None = None,
        denies: str | None = None,
        answers: bool = True,
        keeper: Any = "weir",
        protected: tuple[str, ...] = (),
        spoken: Mapping[int, VersionRange] | None = None,
        uplift: bool = False,
    ) -> None:
        self.admin = Throttles(table or QuotaTable(), denies=denies, answers=answers)
        self.broker = broker or config_cluster()
        plans = Plans(Counters(), throttles=keeper, uplift=uplift, protected=ProtectedTopics(protected))
        self.connection: Connection = new_connection(
            plans=plans if spoken is None else plans.for_broker(spoken)
        )
        self.connection.plans.quota_admin, self.connection.client.user = self.admin, "admin"
        self.connection.client.peer = "10.9.8.7:4711"
        self.client = Client(self.connection, self.broker)
        self.wire = self.client.wire

    def run(self) -> None:
        """Let the broker answer, and threads end, until nothing happens any more."""
        while self.wire.to_broker or self.admin.computing:
            self.client.answer(0)
            while self.admin.computing:
                self.wire.wake(0, self.admin.computing.pop())

    def send(self, frame: bytes) -> bytes:
        self.wire.feed(0, client=frame)
        self.run()
        return b"".join(self.client.take())

    def ask(self, message: Message, version: int) -> Any:
        api_key = schema_of(type(message)).api_key
        return body_of(self.send(request(message, version)), response_type(api_key), version)

    def alter(self, message: Message, version: int = 1) -> dict[Resource, int]:
        response = self.ask(message, version)
        found = {(entry.resource_type, entry.resource_name): entry.error_code for entry in response.responses}
        assert len(found) == len(response.responses), "a resource has two results"
        for entry in response.responses:
            assert (entry.error_message is None) == (entry.error_code == 0), entry
        return found

    @property
    def stored(self) -> dict[tuple[Resource, str], str]:
        return {
            ((at.resource_type.value, at.resource_name), at.name): value
            for at, value in self.admin.table.replication.values.items()
        }
