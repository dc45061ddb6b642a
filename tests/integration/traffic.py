"""Clients that keep talking, each in a thread of its own, while a test moves the cluster under them.

Senders number their records per partition; receivers note what they get. `flow` returns when records that
were sent after it was called have arrived, `settle` when all have, and `assert_all_arrived` judges.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import defaultdict
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients import ClientError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    from kafka import KafkaProducer
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PATIENCE_S: Final = 90.0
_PACE_S = 0.02
_POLL_S = 0.05
_FAST = {"topic.metadata.refresh.interval.ms": 2000, "reconnect.backoff.max.ms": 1000, "log_level": 2}
_IN_GROUP = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
_CALM = {"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 100}  # else every record is fetched by itself
ONCE: Final = {"enable.idempotence": True}
"""For brokers since 0.11: each record once, in order, whatever has to be sent again."""
AT_LEAST_ONCE: Final = {"acks": "all", "max.in.flight": 1, "request.timeout.ms": 3000}
"""What older brokers can promise: what was sent again may be there twice, and out of order.

When a partition moves, librdkafka sends later records to the new leader before it repeats the request that
the former one has not answered (seen without Weir, 2026-11-24: in 1 of 30 moves, with 0.10.2.2).
0.10.2.2 leaves a Produce unanswered until its timeout if the partition moves away from it meanwhile (30 s
by default, with and without Weir).
"""


class Got(NamedTuple):
    """A record as a receiver saw it: where it stands, who sent it, and that sender's number for it."""

    partition: int
    offset: int
    sender: str
    number: int


class Talker(ABC):
    """A client in a thread; a context manager. `stop` ends it, and raises what went wrong in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def talk(self) -> None:
        """Go on until `_stopped` is set; then finish what is under way."""

    def stop(self) -> None:
        """Let it finish, and wait until it has. May be called again. Raises ClientError."""
        self._stopped.set()
        self._thread.join(2 * PATIENCE_S)
        self.check()
        if self._thread.is_alive():
            raise ClientError(f"{self.name} did not end within {2 * PATIENCE_S:.0f} s")

    def check(self) -> None:
        if self._failure is not None:
            raise ClientError(f"{self.name}: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            self.talk()
        except Exception as error:  # noqa: BLE001 (whatever it is, the test's own thread raises it)
            self._failure = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if error is None:
            self.stop()


class Sender(Talker):
    """Sends its next number to every partition, some 50 times a second."""

    def __init__(self, name: str, topic: str, partitions: int) -> None:
        super().__init__(name)
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        """How many numbers; each went to every partition."""
        self.errors: list[str] = []
        """Of records that were given up."""
        self.pauses_s = [0.0] * partitions
        """Longest time (s) between two acknowledgements, by partition."""
        self._latest_s = [math.inf] * partitions

    def send_until_stopped(self, send: Callable[[int, bytes], object], serve: Callable[[], object]) -> None:
        """Call send(partition, value) for each record, `serve` in between. Raises ClientError."""
        while not self._stopped.is_set():
            for partition in range(self.partitions):
                send(partition, f"{self.name} {self.sent}".encode())
            self.sent += 1
            serve()
            self.check_errors()
            self._stopped.wait(_PACE_S)  # the pace of the load; nothing is decided by it

    def note_acknowledged(self, partition: int) -> None:
        now_s = time.monotonic()
        self.pauses_s[partition] = max(self.pauses_s[partition], now_s - self._latest_s[partition])
        self._latest_s[partition] = now_s

    def check_errors(self) -> None:
        if self.errors:
            raise ClientError(f"{len(self.errors)} records not acknowledged: {self.errors[:3]}")


class RdSender(Sender):
    """A producer of librdkafka; `promise` is ONCE or AT_LEAST_ONCE."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, promise: Mapping[str, Any], name: str = "rd"
    ) -> None:
        super().__init__(name, topic, partitions)
        self._options: dict[str, Any] = (
            {"bootstrap.servers": bootstrap, "linger.ms": 20} | _FAST | dict(promise)
        )
        self._options["message.timeout.ms"] = int(PATIENCE_S * 1000)

    def talk(self) -> None:
        producer = Producer(self._options)
        with closing(producer):
            self.send_until_stopped(
                lambda partition, value: producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._delivered
                ),
                lambda: producer.poll(0),
            )
            left = producer.flush(PATIENCE_S)
        self.check_errors()
        if left:
            raise ClientError(f"{left} records unanswered after {PATIENCE_S:.0f} s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        elif (partition := message.partition()) is not None:
            self.note_acknowledged(partition)


class PySender(Sender):
    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str = "kafka-python") -> None:
        super().__init__(name, topic, partitions)
        self._options = {
            "bootstrap_servers": bootstrap,
            "bootstrap_timeout_ms": int(PATIENCE_S * 1000),
            "acks": "all",
            "enable_idempotence": True,
        }

    def talk(self) -> None:
        producer = KafkaProducer(**self._options)
        with closing(producer):
            self.send_until_stopped(
                lambda partition, value: (
                    producer.send(self.topic, value, partition=partition)
                    .add_callback(lambda record: self.note_acknowledged(record.partition))
                    .add_errback(lambda error: self.errors.append(repr(error)))
                ),
                lambda: None,
            )
            producer.flush(PATIENCE_S)
        self.check_errors()


class Receiver(Talker):
    """Notes every record it gets. Members of a group may get one again when partitions change hands."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.got: list[Got] = []
        self.latest: dict[tuple[int, str], int] = defaultdict(lambda: -1)
        """The largest number by partition and sender."""

    def note(self, partition: int | None, offset: int | None, value: object) -> None:
        if partition is None or offset is None or not isinstance(value, bytes):
            raise ClientError(f"half a message: {partition=} {offset=} {value=}")
        sender, _, number = value.decode().rpartition(" ")
        self.got.append(Got(partition, offset, sender, int(number)))
        key = partition, sender
        self.latest[key] = max(self.latest[key], int(number))


class RdReceiver(Receiver):
    """A consumer of librdkafka: of all partitions from their start, or as a member of `group`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        group: str | None = None,
        options: Mapping[str, Any] | None = None,
        name: str = "rd consumer",
    ) -> None:
        super().__init__(name)
        self._topic, self._partitions, self._group = topic, partitions, group
        self._options: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group or "unused"}
        self._options |= (
            _FAST | _IN_GROUP | _CALM | {"enable.auto.commit": group is not None} | dict(options or {})
        )

    def talk(self) -> None:
        """See `Talker`. Errors that librdkafka itself gets over are not failures."""
        consumer = Consumer(self._options)
        with closing(consumer):
            if self._group is None:
                numbers = range(self._partitions)
                consumer.assign([TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in numbers])
            else:
                consumer.subscribe([self._topic])
            while not self._stopped.is_set():
                for message in consumer.consume(500, timeout=0.1):
                    self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.note(message.partition(), message.offset(), message.value())
        elif error.fatal():
            raise ClientError(str(error))


def create_spread(bootstrap: str, topic: str, replicas: list[list[int]], min_in_sync: int = 1) -> None:
    """Create a topic whose partition n is at the brokers replicas[n]; return when all of them hold it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(
        topic, len(replicas), replica_assignment=replicas, config={"min.insync.replicas": str(min_in_sync)}
    )
    admin.create_topics([wanted])[topic].result(PATIENCE_S)
    until_in_sync(admin, topic)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, lambda: f"{topic} to be deleted")


def until_in_sync(admin: AdminClient, topic: str) -> None:
    """See `wait_in_sync`."""

    def behind() -> dict[int, list[int]]:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return {
            number: sorted(partition.isrs)
            for number, partition in found.items()
            if partition.leader < 0 or set(partition.isrs) != set(partition.replicas)
        } or ({} if found else {-1: []})

    until(lambda: not behind(), lambda: f"all replicas of {topic}; by partition, in sync are {behind()}")


def wait_in_sync(bootstrap: str, topic: str) -> None:
    """Return when every replica of every partition is in sync, and one of them leads."""
    until_in_sync(AdminClient({"bootstrap.servers": bootstrap}), topic)


def leaders(bootstrap: str, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=PATIENCE_S)
    return [partition.leader for _, partition in sorted(found.topics[topic].partitions.items())]


def until(is_so: Callable[[], bool], what: Callable[[], str], *talkers: Talker) -> None:
    """Return when it is so; meanwhile the talkers must go on without failing. Raises ClientError."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        for talker in talkers:
            talker.check()
        if time.monotonic() > deadline:
            raise ClientError(f"waited {PATIENCE_S:.0f} s for {what()}")
        time.sleep(_POLL_S)


def flow(senders: Sequence[Sender], *audiences: Sequence[Receiver]) -> None:
    """Return when records that were sent after this call have reached each audience from each partition.

    An audience is receivers that share the partitions. Raises ClientError.
    """
    _reach({sender: sender.sent + 1 for sender in senders}, audiences)


def settle(senders: Sequence[Sender], *audiences: Sequence[Receiver]) -> None:
    """End the senders, and then the receivers once they have got everything. Raises ClientError."""
    for sender in senders:
        sender.stop()
    _reach({sender: sender.sent - 1 for sender in senders}, audiences)
    late = partial(_missing, senders, audiences)  # records that were stored out of order
    until(lambda: not late(), lambda: f"the records {late()[:9]}", *itertools.chain(*audiences))
    for receiver in itertools.chain(*audiences):
        receiver.stop()


def assert_all_arrived(
    senders: Sequence[Sender], audience: Sequence[Receiver], *, once: bool, again: bool = False
) -> None:
    """Every record is in its partition; once and in order if `once`, because the sender promises that.

    A receiver sees each offset once, unless partitions change hands and it is told so by `again`.
    """
    got = [record for receiver in audience for record in receiver.got]
    by_place = {(record.partition, record.offset): record for record in got}
    assert set(by_place.values()) == set(got), "one offset with two values"
    if not again:
        assert len(by_place) == len(got), "records were handed out twice"
    for sender in senders:
        for partition in range(sender.partitions):
            stored = [
                by_place[place].number
                for place in sorted(by_place)
                if place[0] == partition and by_place[place].sender == sender.name
            ]
            missing = sorted(set(range(sender.sent)).difference(stored))
            assert not missing, f"{sender.name}, partition {partition}, of {sender.sent}: {missing[:9]}"
            if once:
                assert stored == list(range(sender.sent)), f"{sender.name}, partition {partition}"


def _missing(
    senders: Iterable[Sender], audiences: Iterable[Sequence[Receiver]]
) -> list[tuple[str, int, int]]:
    """Return (sender, partition, number) of each record that an audience has not got."""
    sent = {
        (sender.name, partition, number)
        for sender in senders
        for partition in range(sender.partitions)
        for number in range(sender.sent)
    }
    got = [
        {(each.sender, each.partition, each.number) for receiver in audience for each in receiver.got}
        for audience in audiences
    ]
    return sorted(set().union(*(sent - each for each in got)))


def _reach(marks: Mapping[Sender, int], audiences: Sequence[Sequence[Receiver]]) -> None:
    def missing() -> list[str]:
        return [
            f"{sender.name}'s {mark} from partition {partition}, {audience[0].name} is at {latest}"
            for audience in audiences
            for sender, mark in marks.items()
            for partition in range(sender.partitions)
            if (latest := max(each.latest[partition, sender.name] for each in audience)) < mark
        ]

    until(lambda: not missing(), lambda: "; ".join(missing()), *marks, *itertools.chain(*audiences))
