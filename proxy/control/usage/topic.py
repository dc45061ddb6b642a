"""Write records to a topic through librdkafka, whose own threads send, compress and retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from weir.proxy.control.stores.store import StoreError
from weir.proxy.control.stores.topic_log import (
    ADMIN_S,
    ALL_BROKERS_DOWN,
    EXISTS,
    NOT_ALLOWED,
    UNSUPPORTED,
    Properties,
    awaited,
    failures,
    told,
)
from weir.proxy.control.usage.outlet import OutletError, Record, key, value
from weir.proxy.control.usage.tally import Kind, Loss, Tally

if TYPE_CHECKING:
    from confluent_kafka import Message

PARTITIONS: Final = 6
"""Number of partitions, and so of parallel readers. The records of one client are in one
partition, in order.
"""
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
DELIVERY_MS: Final = 300_000
"""Time (ms) after which records that were not delivered are dropped."""
BUFFER_KB: Final = 128 * 1024
LINGER_MS: Final = 100
FULL_S: Final = 0.1
"""Time (s) for which `UsageTopic.write` waits for room while librdkafka's queue is full."""
PURGE_S: Final = 1.0


class Sender(Protocol):
    """The methods of confluent-kafka's producer that the outlet uses."""

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes,
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        """Queue a record. Raises BufferError if the queue is full; KafkaException for other errors."""

    def poll(self, timeout: float) -> int:
        """Call `on_delivery` for each record that was delivered or has failed; wait for at most `timeout` (s)
        for such a record.
        """

    def flush(self, timeout: float) -> int:
        """Wait until the queue is empty, for at most `timeout` (s); return the number of records left."""

    def purge(self) -> None:
        """Drop the queued records."""


def sender_properties(properties: Properties, queue_records: int, *, idempotent: bool) -> Properties:
    """Return the librdkafka properties of the producer of usage records: `properties`, and those that only
    this producer needs.
    """
    return properties | {
        "acks": "all",
        "enable.idempotence": idempotent,
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # the partitioner of Java's producers
        "linger.ms": LINGER_MS,
        "message.timeout.ms": DELIVERY_MS,
        "queue.buffering.max.messages": queue_records,
        "queue.buffering.max.kbytes": BUFFER_KB,
    }


def make_topics(topics: Sequence[str], properties: Properties, replication_factor: int) -> None:
    """Create the topics that are missing. Skip a topic that Weir is not authorized to create. Raises
    StoreError.
    """
    admin = AdminClient(properties)
    for topic in topics:
        config = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        wanted = NewTopic(topic, PARTITIONS, replication_factor, config=config)
        with failures(f"cannot make the topic {topic}", {EXISTS, *NOT_ALLOWED, *UNSUPPORTED}):
            awaited(admin.create_topics([wanted], request_timeout=ADMIN_S))


def _producer(properties: Mapping[str, object]) -> Sender:
    """Return a producer of librdkafka. Raises KafkaException."""
    return Producer(dict(properties))


class UsageTopic:
    """A destination of usage records (`Outlet`): a topic. A record counts as written once the cluster has
    acknowledged it.
    """

    def __init__(
        self,
        topics: dict[Kind, str],
        prepare: Callable[[], Properties],
        tally: Tally,
        wall_s: Callable[[], float],
        new_sender: Callable[[Mapping[str, object]], Sender] = _producer,
    ) -> None:
        """Begin without a connection. `prepare` creates the topics and returns the producer's properties; it
        raises StoreError.
        """
        self.name = next(iter(topics.values()))
        self._topics = topics
        self._prepare = prepare
        self._tally = tally
        self._wall_s = wall_s
        self._new_sender = new_sender
        self._sender: Sender | None = None
        self._loss = Loss.UNDELIVERED
        self._fatal = False
        self._delivered = {kind: partial(self._note_delivery, kind) for kind in Kind}

    def open(self) -> None:
        """Make a producer, unless there is one. Raises OutletError."""
        if self._fatal:
            self._give_up()
        if self._sender is not None:
            return
        try:
            self._sender = self._new_sender({**self._prepare(), "error_cb": self._note_error})
        except StoreError as error:
            raise OutletError(str(error)) from None
        except KafkaException as error:
            raise self._told(error.args[0]) from None

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        """Pass as many records to librdkafka as it takes now; return their number. Raises OutletError."""
        sender = self._sender
        if sender is None or self._fatal:
            raise OutletError(self._tally.failure or f"cannot write to the topic {self.name}")
        taken = 0
        try:
            for record in records:
                sender.produce(
                    self._topics[kind],
                    value=value(record),
                    key=key(record),
                    on_delivery=self._delivered[kind],
                )
                taken += 1
        except BufferError:
            if not taken:
                sender.poll(FULL_S)
        except KafkaException as error:
            self._fatal = error.args[0].fatal()
            if not taken:
                raise self._told(error.args[0]) from None
        self._tally.unacknowledged += taken
        sender.poll(0)
        return taken

    def tend(self) -> None:
        """Serve librdkafka's delivery reports, which count records as written or dropped."""
        if self._sender is not None:
            self._sender.poll(0)

    def close(self, timeout_s: float) -> None:
        """Wait for at most `timeout_s` until the cluster has acknowledged the sent records; count the others
        as dropped.
        """
        if self._sender is not None:
            self._loss = Loss.SHUTDOWN
            self._sender.flush(timeout_s)
            self._give_up()

    def _give_up(self) -> None:
        sender, self._sender, self._fatal = self._sender, None, False
        if sender is not None:
            sender.purge()
            sender.flush(PURGE_S)

    def _note_delivery(self, kind: Kind, error: KafkaError | None, message: Message) -> None:
        self._tally.unacknowledged -= 1
        if error is None:
            self._tally.note_written(kind, 1, len(message), self._wall_s())
        else:
            self._tally.note_dropped(self._loss, 1)
            self._tally.failure = str(self._told(error))

    def _note_error(self, error: KafkaError) -> None:
        """Record the reason of a librdkafka error that concerns the whole client, such as no broker
        answering, as the present failure.
        """
        if error.fatal():
            self._fatal = True
        if error.fatal() or error.code() == ALL_BROKERS_DOWN:
            self._tally.failure = str(self._told(error))

    def _told(self, error: KafkaError) -> OutletError:
        return OutletError(f"cannot write to the topic {self.name}: {told(error)}")
