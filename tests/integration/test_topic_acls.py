"""Topics whose names Weir may not know, because an ACL keeps clients from describing them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from bench.frames import record_batch
from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.integration.traffic import PATIENCE_S, until
from tests.integration.weir_log import entries
from tests.integration.with_sasl import Front
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, PLAIN, WEIR
from tests.kafka.settings import HOST
from tests.raw.sasl import SaslConnection
from tests.wire import frames
from tests.wire.connection import Connection
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.close_reasons import CloseReason

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{WEIR.name}",
}
RATE: Final = '[[quota]]\ntopic = "{}"\nproducer_byte_rate = 10000\n'
RECORD_BYTES: Final = 10_000
CONNECTIONS, ROUNDS = 8, 20


class Load:
    """Connections of alice that produce to a topic by its id, and fetch from it."""

    def __init__(self, topic_id: UUID, connections: Sequence[SaslConnection]) -> None:
        self._connections = connections
        partition = ProduceRequest.PartitionProduceData(records=record_batch(bytes(RECORD_BYTES)))
        produced = ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[partition])
        self._produce = frames.request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[produced]), 13)
        fetched = FetchRequest.FetchTopic(
            topic_id=topic_id, partitions=[FetchRequest.FetchPartition(partition_max_bytes=1 << 20)]
        )
        self._fetch = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[fetched])

    def produce(self) -> int:
        """Send a request on each connection. Return the longest throttle time (ms). No request may fail."""
        for connection in self._connections:
            connection.send(self._produce)
        answers = [frames.body_of(one.receive(), ProduceResponse, 13) for one in self._connections]
        errors = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert set(errors) == {ErrorCode.NONE}
        return max(answer.throttle_time_ms for answer in answers)

    def fetched_bytes(self) -> int:
        answer = self._connections[0].ask(self._fetch, FetchResponse, 13)
        (partition,) = answer.responses[0].partitions
        assert (answer.error_code, partition.error_code) == (0, 0)
        return len(partition.records or b"")


def test_a_topic_that_its_client_may_not_describe_is_charged_once_weir_learns_its_name(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """Only the operation Describe is denied: alice may produce and fetch, if she knows the topic's id."""
    cluster = kafka_cluster("4.4.0", settings=AUTHORIZER)
    create_topic(cluster.bootstrap, topic)
    by_name = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    with Connection((HOST, cluster.ports[0])) as plain:
        topic_id = plain.ask(by_name, MetadataResponse, 12).topics[0].topic_id
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{ALICE.name}", "*"
    denied = *resource, AclOperation.DESCRIBE, AclPermissionType.DENY
    acls = [AclBinding(*resource, AclOperation.ALL, AclPermissionType.ALLOW), AclBinding(*denied)]
    for created in admin.create_acls(acls).values():
        created.result(PATIENCE_S)
    front = Front(start_weir, cluster, tmp_path, RATE.format(topic))
    by_id = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)])

    def unnamed() -> float:
        return sum(front.admin.settled().rows("weir_topics_unnamed_total").values())

    with ExitStack() as stack:
        connections = [stack.enter_context(SaslConnection(front.broker)) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.log_in(PLAIN, ALICE.name, ALICE.password)

        def told() -> MetadataResponse.MetadataResponseTopic:
            return connections[0].ask(by_id, MetadataResponse, 12).topics[0]

        until(lambda: not told().name, lambda: "the ACLs")
        assert told().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        load, began_s = Load(topic_id, connections), time.monotonic()
        assert [load.produce() for _ in range(ROUNDS)] == [0] * ROUNDS
        assert load.fetched_bytes() > RECORD_BYTES
        asked_max = CONNECTIONS * (time.monotonic() - began_s + 1)
        assert 1 <= unnamed() <= asked_max
        for deleted in admin.delete_acls([AclBindingFilter(*denied)]).values():
            assert deleted.result(PATIENCE_S)
        until(lambda: load.produce() > 0, lambda: "the topic to be charged")
        assert told().name == topic
    closed = {entry["reason"] for entry in entries(front.weir.log) if entry["event"] == "connection closed"}
    assert closed <= {CloseReason.CLIENT_CLOSED, CloseReason.CLIENT_RESET}
