"""librdkafka, through confluent-kafka, in this process."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public, not marked so
from confluent_kafka.cimpl import NewTopic

from tests.clients.model import MAX_MESSAGE_BYTES, Acks, ClientError, Consumed, Produced, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from confluent_kafka import KafkaError, Message, ThrottleEvent

_ANY_PARTITION = -1


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    replication: int = 1,
    timeout_s: float = 30.0,
    *,
    on: int | None = None,
) -> None:
    """Create a topic and return when every partition's leader answers for it. Raises ClientError.

    `on` is the node that has its partitions, all of them, without replicas.

    Metadata names a leader before that broker knows of it (seen with 4.2.0). What is sent to it in between is
    refused and sent again, behind what came later; with acks=0 the connection is closed, its records lost.
    """
    if on is None:
        wanted = NewTopic(topic, partitions, replication)
    else:
        wanted = NewTopic(topic, partitions, replica_assignment=[[on]] * partitions)
    _create(bootstrap, [wanted], partitions, timeout_s)


def create_topics(bootstrap: str, topics: Sequence[str], timeout_s: float = 30.0) -> None:
    """Create topics with one partition each, as `create_topic` does; all in one request."""
    _create(bootstrap, [NewTopic(topic, 1, 1) for topic in topics], 1, timeout_s)


def _create(bootstrap: str, topics: Sequence[NewTopic], partitions: int, timeout_s: float) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for topic, future in admin.create_topics(list(topics)).items():
        try:
            future.result(timeout_s)
        except KafkaException as error:
            raise ClientError(f"could not create topic {topic}: {error}") from error
    deadline = time.monotonic() + timeout_s
    for wanted in topics:
        topic = wanted.topic
        while not (_has_leaders(admin, topic, partitions) and _leaders_answer(admin, topic, partitions)):
            if time.monotonic() > deadline:
                raise ClientError(f"topic {topic}: not every partition got a leader within {timeout_s:.0f} s")


def _has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return sum(partition.leader >= 0 for partition in found) == partitions


def _leaders_answer(admin: AdminClient, topic: str, partitions: int) -> bool:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's
    asked = {TopicPartition(topic, number): latest for number in range(partitions)}
    answers = admin.list_offsets(asked, request_timeout=10).values()
    return all(answer.exception() is None for answer in answers)


class Librdkafka:
    """See `model.Client`. Every throttle time above zero is reported one by one."""

    name = "librdkafka"

    def running(self) -> AbstractContextManager[Librdkafka]:
        return nullcontext(self)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[bytes],
        *,
        acks: Acks = "all",
        partition: int | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Produced:
        """See `model.Client`."""
        seen = _Seen()
        options = {"acks": acks, "message.max.bytes": MAX_MESSAGE_BYTES}
        producer = Producer(seen.options(bootstrap, client_id) | options | dict(config or {}))
        transactional = "transactional.id" in (config or {})
        if transactional:
            producer.init_transactions(timeout_s)
            producer.begin_transaction()
        began = time.monotonic()
        for message in messages:
            _send(producer, topic, message, partition, seen, began + timeout_s)
        left = producer.flush(max(0.0, began + timeout_s - time.monotonic()))
        seconds = time.monotonic() - began
        if left or seen.errors:
            what = "; ".join(sorted(set(seen.errors)))
            raise ClientError(f"{left} of {len(messages)} messages unanswered after {seconds:.1f} s; {what}")
        if transactional:
            producer.commit_transaction(timeout_s)
        return Produced(seconds, seen.throttle_max_ms, tuple(seen.throttle_ms))

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        group: str | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Consumed:
        """See `model.Client`."""
        seen = _Seen()
        options = {
            "group.id": group or "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(seen.options(bootstrap, client_id) | options | dict(config or {}))
        with closing(consumer):
            began = time.monotonic()
            if group is None:
                consumer.assign(_from_start(consumer, topic, timeout_s))
            else:
                consumer.subscribe([topic])
            records = _read(consumer, count, began, timeout_s)
            seconds = time.monotonic() - began
            if len(records) < count:
                what = "; ".join(sorted(set(seen.errors)))
                raise ClientError(f"{len(records)} of {count} records after {seconds:.1f} s; {what}")
            if group is not None:
                consumer.commit(asynchronous=False)
        return Consumed(tuple(records), seconds, seen.throttle_max_ms, tuple(seen.throttle_ms))


class _Seen:
    def __init__(self) -> None:
        self.throttle_ms: list[float] = []
        self.errors: list[str] = []

    def options(self, bootstrap: str, client_id: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "throttle_cb": self._throttled,
            "error_cb": lambda error: self.errors.append(str(error)) if error.fatal() else None,
            "log_level": 2,
        }

    @property
    def throttle_max_ms(self) -> float:
        return max(self.throttle_ms, default=0.0)

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))

    def _throttled(self, event: ThrottleEvent) -> None:
        """Called for each throttled response, and once with zero when the throttling ends."""
        if event.throttle_time > 0:
            self.throttle_ms.append(round(event.throttle_time * 1000, 3))


def _send(
    producer: Producer, topic: str, message: bytes, partition: int | None, seen: _Seen, deadline: float
) -> None:
    to = _ANY_PARTITION if partition is None else partition
    while True:
        try:
            producer.produce(topic, message, partition=to, on_delivery=seen.delivered)
        except BufferError as error:
            if time.monotonic() > deadline:
                raise ClientError(f"librdkafka's queue stayed full: {error}") from error
            producer.poll(0.05)
        else:
            producer.poll(0)
            return


def _from_start(consumer: Consumer, topic: str, timeout_s: float) -> list[TopicPartition]:
    try:
        found = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
    except KafkaException as error:
        raise ClientError(f"no metadata of topic {topic}: {error}") from error
    return [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found]


def _read(consumer: Consumer, count: int, began: float, timeout_s: float) -> list[Record]:
    records: list[Record] = []
    while len(records) < count and time.monotonic() < began + timeout_s:
        for message in consumer.consume(min(500, count - len(records)), timeout=0.2):
            if error := message.error():
                raise ClientError(f"after {len(records)} of {count} records: {error}")
            records.append(_record(message, time.monotonic() - began))
    return records


def _record(message: Message, at_s: float) -> Record:
    partition, offset, value = message.partition(), message.offset(), message.value()
    if partition is None or offset is None or not isinstance(value, bytes):
        raise ClientError(f"librdkafka handed out half a message: {partition=} {offset=}")
    return Record(partition, offset, value, at_s)
