"""The topic of shared usage, accessed by librdkafka: one partition, kept for a minute.

Times of records are the broker's, and are compared with each other only: a Weir's clock may be wrong. In a
topic that somebody has made with other settings, they are the times of the writers. Such times are ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
import trio
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from weir.proxy.control.sharing.reader import ReadReport
from weir.proxy.control.stores.store import StoreError
from weir.proxy.control.stores.topic import REPLICAS_MAX, cluster_facts
from weir.proxy.control.stores.topic_log import (
    ALL_BROKERS_DOWN,
    EXISTS,
    NOT_ALLOWED,
    OF_GROUPS,
    PARTITION,
    UNSUPPORTED,
    Properties,
    awaited,
    failures,
    properties,
)

if TYPE_CHECKING:
    from confluent_kafka import Message

    from weir.proxy.config.config import Config

log = structlog.get_logger("weir.quotas")

KEPT_MS: Final = 60_000
"""Retention (ms) of the topic, and time for which a Weir reads back at its start."""
ADMIN_S: Final = 5.0
LEADER_PAUSE_S: Final = 0.1
"""Time (s) between two questions for the leader of a new topic."""
NOT_YET: Final = frozenset({3, 5})
"""Kafka's error codes UNKNOWN_TOPIC_OR_PARTITION and LEADER_NOT_AVAILABLE: the broker will know it soon."""
BATCH_MAX: Final = 1000
DELIVERY_MS: Final = 1000
"""Time (ms) after which a report that was not delivered is dropped: the next one has the same totals."""
FLUSH_S: Final = 0.5
TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(KEPT_MS),
    "segment.ms": str(KEPT_MS),
    "message.timestamp.type": "LogAppendTime",
}


class ShareTopic:
    """A producer and a consumer of the topic; implements `reader.Link`. `send` may be called from any thread,
    the other methods from one thread.
    """

    def __init__(self, topic: str, config: Config) -> None:
        """Create the topic if it is missing, and begin to read the last minute. Blocks. Raises StoreError."""
        self._topic = topic
        self._down: KafkaError | None = None
        known = properties(config)
        facts = trio.run(cluster_facts, config)
        _make(topic, known, min(REPLICAS_MAX, facts.brokers))
        with failures(f"cannot use the topic {topic}"):
            self._producer = Producer(known | _OF_PRODUCER)
            wait_for_leader(self._producer, topic)
            self._consumer = Consumer(known | _OF_CONSUMER | {"error_cb": self._note})
            self._consumer.assign([beginning(self._consumer, topic)])

    def send(self, data: bytes) -> bool:
        """Queue a report without waiting; return False if it was dropped."""
        try:
            self._producer.produce(self._topic, value=data, partition=PARTITION)
        except (BufferError, KafkaException):
            return False
        return True

    def read(self, timeout_s: float) -> list[ReadReport]:
        """Return the next records; wait for at most `timeout_s` (s). Raises StoreError."""
        with failures(f"cannot read the topic {self._topic}"):
            self._producer.poll(0)
            first = self._consumer.poll(timeout_s)
            if first is None:
                if self._down is not None:
                    raise KafkaException(self._down)
                return []
            return [found for each in [first, *self._consumer.consume(BATCH_MAX, 0)] for found in _read(each)]

    def close(self) -> None:
        """Send what is queued for at most `FLUSH_S`, and close."""
        self._producer.flush(FLUSH_S)
        self._producer.purge()
        self._consumer.close()

    def _note(self, error: KafkaError) -> None:
        if error.code() == ALL_BROKERS_DOWN or error.fatal():
            self._down = error


_OF_PRODUCER: Final[Properties] = {
    "acks": 1,
    "linger.ms": 5,
    "message.timeout.ms": DELIVERY_MS,
    "queue.buffering.max.messages": 1000,
}
_OF_CONSUMER: Final[Properties] = {
    "group.id": "weir",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
}


def _make(topic: str, known: Properties, replication_factor: int) -> None:
    """Create the topic if it is missing and Weir is authorized. Raises StoreError."""
    wanted = NewTopic(topic, 1, replication_factor, config=TOPIC_CONFIG)
    with failures(f"cannot make the topic {topic}", {EXISTS, *NOT_ALLOWED, *UNSUPPORTED}):
        admin = AdminClient(known)
        awaited(admin.create_topics([wanted], request_timeout=ADMIN_S))


def wait_for_leader(producer: Producer, topic: str, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until the partition of a new topic has a leader, at most for `ADMIN_S`. `pause` waits for a time
    (s). An error that does not pass by itself ends the wait: using the topic fails with it. Raises
    KafkaException if no broker answers.
    """
    for _ in range(int(ADMIN_S / LEADER_PAUSE_S)):
        found = producer.list_topics(topic, timeout=ADMIN_S).topics[topic]
        partition = found.partitions.get(PARTITION)
        has_leader = partition is not None and partition.leader >= 0
        if has_leader or (found.error is not None and found.error.code() not in NOT_YET):
            return
        pause(LEADER_PAUSE_S)


def beginning(consumer: Consumer, topic: str) -> TopicPartition:
    """Return the position a minute before the newest record, by the broker's clock. Return the end of the
    topic if it has no records, or if its times are not the broker's. Raises KafkaException.
    """
    low, high = consumer.get_watermark_offsets(
        TopicPartition(topic, PARTITION), timeout=ADMIN_S, cached=False
    )
    if high <= low:
        return TopicPartition(topic, PARTITION, high)
    consumer.assign([TopicPartition(topic, PARTITION, high - 1)])
    newest = _newest(consumer)
    if newest is None:  # deleted meanwhile
        return TopicPartition(topic, PARTITION, low)
    kind, at_ms = newest.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        log.warning(
            "usage from before the start is not read: set message.timestamp.type=LogAppendTime", topic=topic
        )
        return TopicPartition(topic, PARTITION, high)
    (found,) = consumer.offsets_for_times(
        [TopicPartition(topic, PARTITION, at_ms - KEPT_MS)], timeout=ADMIN_S
    )
    return found


def _newest(consumer: Consumer) -> Message | None:
    """Return the record at the position of the consumer; None if no record comes. Raises KafkaException."""
    while (message := consumer.poll(ADMIN_S)) is not None:
        if _is_record(message):
            return message
    return None


def _is_record(message: Message) -> bool:
    """Return False for an error of consumer groups, which Weir does not use. Raises KafkaException for other
    errors.
    """
    error = message.error()
    if error is not None and error.code() not in OF_GROUPS:
        raise KafkaException(error)
    return error is None


def _read(message: Message) -> list[ReadReport]:
    """Return the record in a message; an empty list for an error of consumer groups. The time is 0 if it is
    not the broker's. Raises KafkaException.
    """
    if not _is_record(message):
        return []
    kind, at_ms = message.timestamp()
    return [ReadReport(message.value() or b"", at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else 0)]


def open_topic(topic: str, config: Config) -> ShareTopic:
    """Return the opened topic. Blocks. Raises StoreError."""
    try:
        return ShareTopic(topic, config)
    except TimeoutError as error:
        raise StoreError(f"cannot use the topic {topic}: {error}") from None
