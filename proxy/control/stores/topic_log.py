"""Access to brokers through librdkafka: its settings, its errors, and a compacted topic of one partition as a
`topic.Log`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource  # the types of both are only declared here
from confluent_kafka.cimpl import NewTopic

from weir.proxy.addresses import Address
from weir.proxy.config.settings import SYSTEM
from weir.proxy.control.stores.record import ConsumerRecord, ConsumerRecords
from weir.proxy.control.stores.store import StoreError, UnfitError
from weir.proxy.net.tls.rules import pair_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from weir.proxy.config.config import Config
    from weir.proxy.control.stores.record import ProducerRecord

Properties: TypeAlias = dict[str, str | int | float | bool]
K = TypeVar("K")
T = TypeVar("T")

ADMIN_S: Final = 10.0
PROBE_S: Final = 2.0
DELIVERY_S: Final = 10.0
BATCH_MAX: Final = 1000
PARTITION: Final = 0
MARK: Final = "weir"
"""Key of the header in which a Weir writes its host name. The header proves nothing: a client that reaches
the brokers past Weir can write it too. Older Weirs ignore the header, and write none.
"""

# Error codes of Kafka, and (negative ones) of librdkafka.
NOT_ALLOWED: Final = frozenset({29, 31})
"""Kafka's error codes for missing permissions: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED."""
EXISTS: Final = 36
UNSUPPORTED: Final = frozenset({35, -165})
PARTITION_EOF: Final = -191
ALL_BROKERS_DOWN: Final = -187
OF_GROUPS: Final = frozenset({15, 16, 30})
"""Kafka's error codes of the group coordinator. Weir uses no consumer group, so it ignores these errors."""


def properties(config: Config, brokers: Iterable[Address] = ()) -> Properties:
    """Return the librdkafka properties that every client of Weir needs, with the password. `brokers` are
    addresses that the client may connect to besides those of `upstream`.
    """
    settings, credentials = config.settings, config.credentials
    addresses = dict.fromkeys([*config.upstream, *brokers])
    protocol = ("SASL_" if credentials else "") + ("SSL" if settings.upstream_tls else "PLAINTEXT")
    found: Properties = {
        "bootstrap.servers": ",".join(map(str, addresses)),
        "client.id": "weir",
        "security.protocol": protocol,
        "log_level": 0,  # Weir logs failures itself, once
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1000,
    }
    if credentials is not None and credentials.token_url:
        found |= {
            "sasl.mechanism": credentials.mechanism,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": credentials.username,
            "sasl.oauthbearer.client.secret": credentials.password,
            "sasl.oauthbearer.token.endpoint.url": credentials.token_url,
        }
        if credentials.scope:
            found["sasl.oauthbearer.scope"] = credentials.scope
        if credentials.extensions:
            found["sasl.oauthbearer.extensions"] = ",".join(map("=".join, credentials.extensions))
    elif credentials is not None:
        found |= {
            "sasl.mechanism": credentials.mechanism,
            "sasl.username": credentials.username,
            "sasl.password": credentials.password,
        }
    if settings.upstream_tls:
        found["ssl.endpoint.identification.algorithm"] = "https" if settings.upstream_verify_host else "none"
        if settings.upstream_tls != SYSTEM:
            found["ssl.ca.location"] = settings.upstream_tls
        pair = pair_of(settings.upstream_cert, "upstream_cert")
        if pair is not None:
            found["ssl.certificate.location"] = str(pair.cert)
            found["ssl.key.location"] = str(pair.key)
    return found


class TopicLog:
    """A compacted topic of one partition, accessed by librdkafka. It has a connection only while a reader, a
    writer or `prepare` is in use.
    """

    def __init__(self, topic: str, properties: Properties) -> None:
        """Begin without a connection. `properties` are the librdkafka properties for connections to the
        cluster.
        """
        self._topic = topic
        self._properties = properties

    def prepare(self, replication_factor: int) -> None:
        """Create the topic if it is missing, and check that it is compacted. Skip a step that Weir is not
        authorized to do. Raises StoreError; UnfitError if the topic is not compacted.
        """
        admin = AdminClient(self._properties)
        wanted = NewTopic(self._topic, 1, replication_factor, config={"cleanup.policy": "compact"})
        with failures(f"cannot make the topic {self._topic}", {EXISTS, *NOT_ALLOWED, *UNSUPPORTED}):
            awaited(admin.create_topics([wanted], request_timeout=ADMIN_S))
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)
        policy = "compact"
        with failures(f"cannot read the settings of {self._topic}", {*NOT_ALLOWED, *UNSUPPORTED}):
            found = awaited(admin.describe_configs([resource], request_timeout=ADMIN_S))
            policy = str(found["cleanup.policy"].value)
        if "compact" not in policy:
            raise UnfitError(
                f"the topic {self._topic} has cleanup.policy={policy}, its quotas would be lost: "
                "set it to compact"
            )

    def reader(self) -> TopicReader:
        """Return a consumer at the start of the topic. Raises StoreError."""
        with failures(f"cannot read the topic {self._topic}"):
            return TopicReader(self._topic, self._properties)

    def writer(self, *, idempotent: bool) -> TopicWriter:
        """Return a producer. Raises StoreError."""
        with failures(f"cannot write to the topic {self._topic}"):
            return TopicWriter(self._topic, self._properties, idempotent=idempotent)


class TopicReader:
    """A consumer of the topic that commits no offsets."""

    def __init__(self, topic: str, properties: Properties) -> None:
        """Begin at the start of the topic. Raises KafkaException."""
        self._what = f"cannot read the topic {topic}"
        self._partition = TopicPartition(topic, PARTITION, OFFSET_BEGINNING)
        self._next = 0
        self._down: KafkaError | None = None
        self._consumer = Consumer(
            properties
            | {
                "group.id": "weir",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 500,
                "fetch.error.backoff.ms": 100,
                "error_cb": self._note,
            }
        )
        self._consumer.assign([self._partition])

    def _note(self, error: KafkaError) -> None:
        if error.code() == ALL_BROKERS_DOWN or error.fatal():
            self._down = error

    def read(self, timeout_s: float) -> ConsumerRecords:
        """Return the next records, or no records after `timeout_s`. Raises StoreError."""
        with failures(self._what):
            first = self._consumer.poll(timeout_s)
            messages = [] if first is None else [first, *self._consumer.consume(BATCH_MAX, 0)]
            if self._down is not None and not messages:
                raise KafkaException(self._down)
            at_end = False
            records = []
            for message in messages:
                error = message.error()
                if error is None:
                    marked = MARK in dict(message.headers() or ())
                    key, value = _bytes(message.key()), _bytes(message.value())
                    found = ConsumerRecord(message.offset() or 0, key, value, marked)
                    records.append(found)
                    self._next = found.offset + 1
                elif error.code() == PARTITION_EOF:
                    at_end = True
                elif error.code() not in OF_GROUPS:
                    raise KafkaException(error)
            return ConsumerRecords(records, at_end)

    def probe(self) -> None:
        """Ask the partition's leader for its offsets, to check that the topic still exists and was not
        deleted and created again. Raises StoreError.
        """
        with failures(self._what):
            _low, high = self._consumer.get_watermark_offsets(self._partition, timeout=PROBE_S, cached=False)
        if high < self._next:
            raise StoreError(f"{self._what}: it was made anew, and is read from its start")

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class TopicWriter:
    """A producer that keeps the order of records, and asks for acks from all in-sync replicas."""

    def __init__(self, topic: str, properties: Properties, *, idempotent: bool) -> None:
        """Begin with no records. Raises KafkaException."""
        self._topic = topic
        self._what = f"cannot write to the topic {topic}"
        self._headers: dict[str, str | bytes | None] | None = (
            {MARK: socket.gethostname().encode()} if idempotent else None
        )
        """Headers of each record; None for brokers before 0.11, which have neither headers nor idempotent
        producers.
        """
        self._waiting = 0
        self._offset = -1
        self._failed: KafkaError | None = None
        self._producer = Producer(
            properties
            | {
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 1,
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "linger.ms": 0,
            }
        )

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Queue all records. Raises StoreError."""
        self._waiting = len(records)
        with failures(self._what):
            for key, value in records:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    partition=PARTITION,
                    headers=self._headers,
                    on_delivery=self._delivered,
                )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._waiting -= 1
        if error is not None:
            self._failed = error
        else:
            self._offset = max(self._offset, message.offset() or 0)

    def wait(self, timeout_s: float) -> int | None:
        """Serve delivery reports for at most `timeout_s`; return the last record's offset once all records
        are acknowledged, else None. Raises StoreError.
        """
        with failures(self._what):
            self._producer.flush(timeout_s)
            if self._failed is not None:
                raise KafkaException(self._failed)
        return None if self._waiting else self._offset

    def close(self) -> None:
        """Drop the records that are still queued."""
        self._producer.purge()
        self._producer.flush(0)


def awaited(futures: Mapping[K, Future[T]]) -> T:
    """Wait for the only future in `futures`, and return its result. Raises KafkaException if the request has
    failed, TimeoutError if it takes too long.
    """
    (future,) = futures.values()
    return future.result(2 * ADMIN_S)


def _bytes(field: str | bytes | None) -> bytes | None:
    return field.encode() if isinstance(field, str) else field


@contextmanager
def failures(what: str, ignored: frozenset[int] | set[int] = frozenset()) -> Iterator[None]:
    """Turn librdkafka's errors in the block into a StoreError whose text is `what` and the reason. Suppress
    errors whose codes are in `ignored`.
    """
    try:
        yield
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() not in ignored:
            raise StoreError(f"{what}: {told(error)}") from None
    except TimeoutError:
        raise StoreError(f"{what}: no answer within {2 * ADMIN_S:g} s") from None


def told(error: KafkaError) -> str:
    """Return the error's text as one line. If Weir's principal lacks permissions, the text names the
    permissions to grant.
    """
    if error.code() == ALL_BROKERS_DOWN:
        return "no broker answers"
    text = " ".join(error.str().split())
    if error.code() in NOT_ALLOWED:
        return f"{text}: allow Weir's principal to Read, Write and Describe it"
    return text
