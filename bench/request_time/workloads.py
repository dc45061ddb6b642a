"""The workloads on which charges are judged: clients of librdkafka, each a step that repeats at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.clients import create_topic
from weir.calibration.batches import RECORD_BYTES, text

WRITTEN, WIDE, SMALL, BIG = "written", "wide", "small", "big"
"""Topics: to write to, without records, with batches of 100 bytes, with batches of 16 kB."""
PARTITIONS: Final = {WRITTEN: 50, WIDE: 500, SMALL: 1, BIG: 1}
BATCHES: Final = {SMALL: (20_000, [bytes(100)]), BIG: (2_000, [bytes(RECORD_BYTES)] * 16)}
"""Numbers of batches, and records of each, that topics have from the beginning."""
FETCH_BYTES: Final = 500_000
LONG_POLL_MS: Final = 500
ANSWER_S: Final = 30.0
LARGE: Final = 900
"""Number of records of 1 kB in a large batch."""
CODECS: Final = {"gzip": (0,), "snappy": (0,), "lz4": (0,), "zstd": (2, 1)}
"""First Kafka release that supports the codec; (0,) for all releases."""

Step = Callable[[], object]
Config = dict[str, Any]


class Workload(NamedTuple):
    """A client that makes several connections."""

    name: str
    make: Callable[[Config], Step]
    """Function that connects with librdkafka's options, and returns the step to repeat."""
    connections: int = 1
    kind: Literal["busy", "compressed", "idle", "overload"] = "busy"
    since: tuple[int, ...] = (0,)
    """First Kafka release that supports the workload."""
    until: tuple[int, ...] = (99,)


def prepare(bootstrap: str) -> None:
    """Create the topics, and write their records. Raises ClientError, KafkaException."""
    for topic, partitions in PARTITIONS.items():
        create_topic(bootstrap, topic, partitions)
    for topic, (count, values) in BATCHES.items():
        options = {"batch.num.messages": len(values), "linger.ms": 50, "queue.buffering.max.messages": 10**6}
        producer = Producer({"bootstrap.servers": bootstrap, **options})
        for value in values * count:
            producer.produce(topic, value, partition=0)
        producer.flush(ANSWER_S)


def _produce(values: Sequence[bytes], *, partitions: int = 1, **options: object) -> Callable[[Config], Step]:
    """Write a batch of these values to each of some partitions, in one request."""

    def make(config: Config) -> Step:
        own = {"linger.ms": 1000, "acks": 1, "batch.num.messages": len(values), "batch.size": 1_000_000}
        named = {name.replace("_", "."): value for name, value in options.items()}
        producer = Producer({**config, **own, **named})

        def step() -> None:
            for partition in range(partitions):
                for value in values:
                    producer.produce(WRITTEN, value, partition=partition)
            producer.flush(ANSWER_S)

        return step

    return make


def _fetch(
    topic: str, at_most_bytes: int = FETCH_BYTES, partitions: int = 1, wait_ms: int = 1, **options: object
) -> Callable[[Config], Step]:
    """Read a topic from its beginning to its end, again and again."""

    def make(config: Config) -> Step:
        limits = {"max.partition.fetch.bytes": at_most_bytes, "fetch.wait.max.ms": wait_ms}
        group = {"group.id": "readers", "enable.auto.commit": False, "enable.partition.eof": True}
        named = {name.replace("_", "."): value for name, value in options.items()}
        consumer = Consumer({**config, **limits, **group, **named})
        begin = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        consumer.assign(begin)

        def step() -> None:
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF and partitions == 1:
                    consumer.assign(begin)

        return step

    return make


def _session(wait_ms: int) -> Callable[[Config], Step]:
    """Fetch from 500 empty partitions in a fetch session, which librdkafka does not have."""

    def make(config: Config) -> Step:
        consumer = KafkaConsumer(
            bootstrap_servers=config["bootstrap.servers"],
            client_id=config["client.id"],
            fetch_max_wait_ms=wait_ms,
            enable_auto_commit=False,
        )
        consumer.assign([PythonPartition(WIDE, partition) for partition in range(PARTITIONS[WIDE])])
        for partition in consumer.assignment():
            consumer.seek(partition, 0)
        return lambda: consumer.poll(100)

    return make


def _metadata(topic: str | None) -> Callable[[Config], Step]:
    """Ask for the metadata of a topic; of all if it is None."""

    def make(config: Config) -> Step:
        admin = AdminClient(config)
        return lambda: admin.list_topics(topic, timeout=ANSWER_S) if topic else admin.list_topics()

    return make


def _member(config: Config) -> Step:
    """Join a group as its only member, and leave it."""

    def step() -> None:
        group = f"group-{random.randrange(10**9)}"
        consumer = Consumer({**config, "group.id": group})
        consumer.subscribe([SMALL])
        while not consumer.assignment():
            consumer.poll(0.01)
        consumer.close()

    return step


def _commits(config: Config) -> Step:
    consumer = Consumer({**config, "group.id": config["client.id"], "enable.auto.commit": False})
    offsets = [TopicPartition(WIDE, partition, 0) for partition in range(3)]

    def step() -> None:
        with suppress(KafkaException):  # the group's coordinator is not ready at once
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.committed(offsets, ANSWER_S)

    return step


def _mixed(config: Config) -> Step:
    """Take several kinds of requests in turn."""
    makes = (
        _produce([bytes(RECORD_BYTES)] * 16, acks="all"),
        _fetch(BIG),
        _commits,
        _produce([bytes(100)], partitions=4),
        _metadata(None),
    )
    steps = [make(config) for make in makes]
    return lambda: [step() for step in steps]


def _compressed(codec: str, kind: str, values: Sequence[bytes]) -> Workload:
    make = _produce(values, compression_type=codec)
    return Workload(f"produce-{codec}-{kind}", make, kind="compressed", since=CODECS[codec])


_ZEROS: Final = [bytes(RECORD_BYTES)] * LARGE
_WORDS: Final = text(LARGE)
_OLD: Final[Config] = {"api_version_request": False, "broker_version_fallback": "0.10.0"}
"""Options with which librdkafka asks for records in an older format."""

WORKLOADS: Final = (
    *(
        Workload(f"produce-{name}{'-8' if connections > 1 else ''}", _produce(values), connections)
        for name, values in (("small", [bytes(100)]), ("medium", _ZEROS[:16]), ("large", _ZEROS))
        for connections in (1, 8)
    ),
    Workload("produce-all", _produce([bytes(100)], acks="all")),
    Workload("produce-all-medium-8", _produce(_ZEROS[:16], acks="all"), 8),
    Workload("produce-wide", _produce([bytes(100)], partitions=50)),
    *(
        Workload(f"fetch-{topic}{'-8' if connections > 1 else ''}", _fetch(topic, at_most_bytes), connections)
        for topic, at_most_bytes in ((SMALL, 1000), (BIG, FETCH_BYTES))
        for connections in (1, 8)
    ),
    Workload("fetch-wide", _fetch(WIDE, partitions=200)),
    Workload("fetch-session-500", _session(0), since=(1, 1)),
    Workload("long-polls-16", _fetch(WIDE, wait_ms=LONG_POLL_MS), 16, "idle"),
    Workload("metadata", _metadata(SMALL)),
    Workload("metadata-8", _metadata(SMALL), 8),
    Workload("metadata-large", _metadata(None)),
    Workload("membership", _member),
    Workload("commits", _commits),
    Workload("commits-8", _commits, 8),
    Workload("mixed", _mixed, 5),
    Workload("overload-16", _produce(_ZEROS, acks="all"), 16, "overload"),
    *(
        _compressed(codec, kind, values)
        for codec in CODECS
        for kind, values in (("zeros", _ZEROS), ("words", _WORDS))
    ),
    Workload("fetch-converted-big", _fetch(BIG, **_OLD), until=(4, 0)),
)
