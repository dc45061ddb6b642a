"""Transactions through Weir (KIP-98): committed records are seen once, aborted ones not at all."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.clients import ClientError, Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.clients.pairs import VERSIONS
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import GENEROUS, assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at

pytestmark = [pytest.mark.broker]

TIMEOUT_S = 60.0
TRANSACTIONAL = VERSIONS[1:]  # since 0.11
COMMITTED, UNCOMMITTED = {"isolation.level": "read_committed"}, {"isolation.level": "read_uncommitted"}
client = Librdkafka()


def transactional_producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(producer: Producer, topic: str, messages: list[bytes], *, commit: bool) -> None:
    begin(producer, topic, messages)
    end(producer, commit=commit)


def begin(producer: Producer, topic: str, messages: list[bytes]) -> None:
    """Write `messages` in a new transaction. They are in the log afterwards: an abort drops unsent ones."""
    producer.begin_transaction()
    for message in messages:
        producer.produce(topic, message, partition=0)
    if left := producer.flush(TIMEOUT_S):
        raise ClientError(f"{left} of {len(messages)} records unanswered after {TIMEOUT_S:.0f} s")


def end(producer: Producer, *, commit: bool) -> None:
    (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)


@pytest.mark.parametrize("version", core_at(TRANSACTIONAL, core=("4.4.0",)))
def test_read_committed_consumers_see_committed_records_only(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    producer = transactional_producer(weir.bootstrap, topic)
    first, dropped, last = (some_messages(300, 500, seed=seed) for seed in range(3))
    transact(producer, topic, first, commit=True)
    transact(producer, topic, dropped, commit=False)
    transact(producer, topic, last, commit=True)
    seen = client.consume(weir.bootstrap, topic, 600, config=COMMITTED)
    assert seen.values == first + last
    assert [record.offset for record in seen.records] == [*range(300), *range(602, 902)]
    assert client.consume(weir.bootstrap, topic, 900, config=UNCOMMITTED).values == first + dropped + last
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", TRANSACTIONAL)
def test_offsets_and_records_are_committed_in_one_transaction(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """Read, transform, write: an aborted round leaves neither records nor offsets, the next one does both."""
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    source, target = f"{topic}-source", f"{topic}-target"
    create_topic(weir.bootstrap, source)
    create_topic(weir.bootstrap, target)
    messages = some_messages(100, 200)
    client.produce(weir.bootstrap, source, messages)
    for commit, offset_then in ((False, None), (True, len(messages))):
        copy(weir.bootstrap, source, target, len(messages), commit=commit)
        assert committed_offset(weir.bootstrap, topic_of=source) == offset_then
    seen = client.consume(weir.bootstrap, target, len(messages), config=COMMITTED)
    assert [value[::-1] for value in seen.values] == messages
    assert seen.records[0].offset > len(messages), "the aborted round is before it in the log"
    assert_no_complaint(weir.log)


def copy(bootstrap: str, source: str, target: str, count: int, *, commit: bool) -> None:
    """Write `count` records of `source` backwards to `target` in one transaction, offsets included."""
    consumer = group_of(bootstrap, source)
    with closing(consumer):
        consumer.subscribe([source])
        values = [value[::-1] for value in read(consumer, count)]
        producer = transactional_producer(bootstrap, target)
        begin(producer, target, values)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        end(producer, commit=commit)


def group_of(bootstrap: str, source: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": source,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
        | COMMITTED
    )


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Exactly `count` values. Raises ClientError."""
    messages: list[Message] = consumer.consume(count, timeout=TIMEOUT_S)
    values = [value for message in messages if isinstance(value := message.value(), bytes)]
    if len(values) != count:
        raise ClientError(f"{len(values)} of {count} records after {TIMEOUT_S:.0f} s")
    return values


def committed_offset(bootstrap: str, *, topic_of: str) -> int | None:
    consumer = group_of(bootstrap, topic_of)
    with closing(consumer):
        (found,) = consumer.committed([TopicPartition(topic_of, 0)], timeout=TIMEOUT_S)
    return found.offset if found.offset >= 0 else None
