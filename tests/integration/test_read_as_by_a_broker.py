"""Requests as real clients write them, and as a real broker reads them: Weir refuses none that it takes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeAlias

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.kafka.settings import HOST
from tests.protocol.mutate import mutate
from tests.wire.connection import Connection
from tests.wire.frames import request_frame
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClientQuotasRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    ProduceRequest,
)
from weir.protocol.values import Message, schema_of

pytestmark = [pytest.mark.broker]

VERSION: Final = "3.9.1"
EVERY_QUOTA: Final = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
request_percentage = 100000
controller_mutation_rate = 1000

[[quota]]
topic = "of-nobody"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
"""
Config: TypeAlias = dict[str, str | int | float | bool]
TIMEOUT_S: Final = 20.0
RECORDS: Final = 10
MUTATIONS: Final = 25
"""Of each version of a request."""


def done(futures: Iterable[Future[object]]) -> None:
    for future in futures:
        future.result(TIMEOUT_S)


@pytest.mark.core
def test_librdkafkas_requests_for_the_whole_cluster_pass_under_every_quota(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """Among them are the lists of all topics, of which it leaves three bytes over."""
    metrics = Admin()
    weir = start_weir(kafka_cluster(VERSION).bootstrap, EVERY_QUOTA, options=metrics.options)
    config: Config = {"bootstrap.servers": weir.bootstrap, "client.id": "app"}
    admin = AdminClient(config)
    done(admin.create_topics([NewTopic(topic, 2, 1), NewTopic(f"{topic}-other", 1, 1)]).values())
    producer = Producer(config)
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert topic in admin.list_topics(timeout=TIMEOUT_S).topics
    assert consumed({**config, "group.id": topic}, f"^{topic}$") == {str(n).encode() for n in range(RECORDS)}
    done(admin.create_partitions([NewPartitions(topic, 3)]).values())
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    done(admin.describe_configs([resource]).values())
    entry = ConfigEntry("retention.ms", "100000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    done(admin.incremental_alter_configs([altered]).values())
    done([admin.describe_cluster(), admin.list_consumer_groups()])
    done(admin.describe_topics(TopicCollection([topic])).values())
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library leaves it untyped
    done(admin.list_offsets({TopicPartition(topic, 0): latest}).values())
    done(admin.delete_records([TopicPartition(topic, 0, 3)]).values())
    done(admin.describe_consumer_groups([topic]).values())
    done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)]).values())
    done(admin.delete_consumer_groups([topic]).values())
    done(admin.delete_topics([topic, f"{topic}-other"]).values())
    page = metrics.settled()
    assert page["weir_requests_not_understood_total"] == 0
    assert page.rows("weir_requests_unread_total") == {}
    assert_no_complaint(weir.log)


def consumed(config: Config, pattern: str) -> set[bytes | None]:
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe([pattern])
    try:
        found = consumer.consume(RECORDS, TIMEOUT_S)
        consumer.commit(asynchronous=False)
        return {message.value() for message in found if message.error() is None}
    finally:
        consumer.close()


# A broker's reader and Weir's


def test_weir_reads_mutated_requests_if_and_only_if_a_broker_does(kafka_cluster: StartCluster) -> None:
    """A broker that cannot read a request closes the connection."""
    port = kafka_cluster(VERSION).ports[0]
    source, counted, differing = random.Random(VERSION), {True: 0, False: 0}, []
    for message, version in requests():
        subject = codec(type(message), version)
        whole = subject.encode(message)
        for body in (whole, whole + b"left over", *(mutate(whole, source) for _ in range(MUTATIONS))):
            try:
                asked = subject.decode_request(body)
            except ProtocolError:
                asked = None
            if isinstance(asked, ProduceRequest) and asked.acks == 0:
                continue  # no answer comes
            readable = is_answered(port, request_frame(schema_of(type(message)).api_key, version, body))
            counted[readable] += 1
            if readable != (asked is not None):
                differing.append((type(message).__name__, version, body.hex()))
    assert differing == []
    assert min(counted.values()) > 200, counted


def requests() -> Iterator[tuple[Message, int]]:
    """Requests that name topics which cannot be, in versions that the broker speaks."""
    topic = CreateTopicsRequest.CreatableTopic
    config = CreateTopicsRequest.CreatableTopicConfig(name="a", value=None)
    created = topic(name="no topic of ours", num_partitions=1, replication_factor=9, configs=[config])
    by_id = DeleteTopicsRequest.DeleteTopicState(name="no topic of ours")
    partition = ProduceRequest.PartitionProduceData(records=None)
    produced = ProduceRequest.TopicProduceData(name="no topic of ours", partition_data=[partition])
    for version in range(8):
        if version >= 2:
            yield CreateTopicsRequest(topics=[created]), version
        if version >= 1:
            grown = CreatePartitionsRequest.CreatePartitionsTopic(
                name="no topic of ours", count=3, assignments=None
            )
            yield from [(CreatePartitionsRequest(topics=[grown]), version)] * (version <= 3)
        if 1 <= version <= 6:
            deleted = {"topics": [by_id]} if version == 6 else {"topic_names": ["no topic of ours", "none"]}
            yield DeleteTopicsRequest(**deleted), version
    wanted = MetadataRequest.MetadataRequestTopic(name="no topic of ours", topic_id=uuid.UUID(int=0))
    for version in range(4, 13):
        yield MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), version
        yield MetadataRequest(topics=None, allow_auto_topic_creation=False), version
    for version in range(3, 12):
        yield ProduceRequest(acks=1, timeout_ms=100, topic_data=[produced]), version
    for version in range(7):
        by_keys = FindCoordinatorRequest(coordinator_keys=["a", "b"])
        yield (by_keys if version >= 4 else FindCoordinatorRequest(key="a")), version
    for version in range(2):
        component = DescribeClientQuotasRequest.ComponentData(entity_type="user", match="bob")
        yield DescribeClientQuotasRequest(components=[component]), version


def is_answered(port: int, frame: bytes) -> bool:
    """Whether a broker answers a request; if not, it closes the connection."""
    with Connection((HOST, port), timeout_s=TIMEOUT_S) as connection:
        try:
            connection.exchange(frame)
        except (EOFError, ConnectionError):
            return False
        return True
