"""Records in a topic, by way of librdkafka: its own threads send, compress and try again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from proxy.control.stores.store import StoreError
from proxy.control.stores.topic_log import (
    ADMIN_S,
    ALL_BROKERS_DOWN,
    EXISTS,
    NOT_ALLOWED,
    UNSUPPORTED,
    awaited,
    failures,
    told,
)
from proxy.control.usage.encoding import key, value
from proxy.control.usage.outlet import OutletError, Record
from proxy.control.usage.tally import Kind, Loss, Tally

if TYPE_CHECKING:
    from confluent_kafka import Message

    from proxy.control.stores.librdkafka import Properties

PARTITIONS: Final = 6
"""So many readers can share the work; records of one client are in one of them, in order."""
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
DELIVERY_MS: Final = 300_000
"""A cluster that is away for so long has lost what was to be sent to it."""
BUFFER_KB: Final = 128 * 1024
LINGER_MS: Final = 100
FULL_S: Final = 0.1
"""How long a write waits at a time while librdkafka takes no more."""
PURGE_S: Final = 1.0


class Sender(Protocol):
    """What is used of confluent-kafka's producer."""

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes,
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        """Queue it. Raises BufferError if there is no room, else KafkaException."""

    def poll(self, timeout: float) -> int:
        """Call back for what was delivered, or not."""

    def flush(self, timeout: float) -> int:
        """Wait until nothing is left; return how much is."""

    def purge(self) -> None:
        """Give up what is left."""


def sender_properties(properties: Properties, queue_records: int, *, idempotent: bool) -> Properties:
    """Return what librdkafka is told beside how to reach the cluster."""
    return properties | {
        "acks": "all",
        "enable.idempotence": idempotent,
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # where Java's producers would put the same key
        "linger.ms": LINGER_MS,
        "message.timeout.ms": DELIVERY_MS,
        "queue.buffering.max.messages": queue_records,
        "queue.buffering.max.kbytes": BUFFER_KB,
    }


def make_topics(topics: Sequence[str], properties: Properties, replication_factor: int) -> None:
    """Make those that are missing, unless Weir may not. Raises StoreError."""
    admin = AdminClient(properties)
    for topic in topics:
        config = {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
        wanted = NewTopic(topic, PARTITIONS, replication_factor, config=config)
        with failures(f"cannot make the topic {topic}", {EXISTS, *NOT_ALLOWED, *UNSUPPORTED}):
            awaited(admin.create_topics([wanted], request_timeout=ADMIN_S))


def _producer(properties: Mapping[str, object]) -> Sender:
    """Raises KafkaException."""
    return Producer(dict(properties))


class Topic:
    """See `Outlet`. A record counts as written once the cluster has acknowledged it."""

    def __init__(
        self,
        topics: dict[Kind, str],
        prepare: Callable[[], Properties],
        tally: Tally,
        wall_s: Callable[[], float],
        new_sender: Callable[[Mapping[str, object]], Sender] = _producer,
    ) -> None:
        """`prepare` makes topics, and returns what a producer is told; it raises StoreError."""
        self.name = topics[Kind.USAGE]
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
        """Connect, unless it is connected. Raises OutletError."""
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
        """Hand them to librdkafka, as many as it takes now. Raises OutletError."""
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
        """Hear what became of what was sent."""
        if self._sender is not None:
            self._sender.poll(0)

    def close(self, timeout_s: float) -> None:
        """Wait for what is on its way; the rest is counted as dropped."""
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
        """librdkafka tells what goes on for all brokers together, also without a message."""
        if error.fatal():
            self._fatal = True
        if error.fatal() or error.code() == ALL_BROKERS_DOWN:
            self._tally.failure = str(self._told(error))

    def _told(self, error: KafkaError) -> OutletError:
        return OutletError(f"cannot write to the topic {self.name}: {told(error)}")
