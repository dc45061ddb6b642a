"""Records in a topic: what librdkafka is given, what is counted when, and every way for it to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.proxy.usage_rigs import trace_record, usage_record
from weir.proxy.config.config import load
from weir.proxy.control.stores.store import StoreError
from weir.proxy.control.stores.topic_log import Properties, properties
from weir.proxy.control.usage.outlet import OutletError
from weir.proxy.control.usage.tally import Kind, Loss, Tally
from weir.proxy.control.usage.topic import UsageTopic, sender_properties
from weir.proxy.control.usage.writer import Writer
from weir.usage import UsageRecord

if TYPE_CHECKING:
    from confluent_kafka import Message

TOPICS = {Kind.USAGE: "usage", Kind.TRACE: "usage-trace"}
NOW_S = 1_763_775_570.0
TIMED_OUT, PURGED, DENIED = -192, -152, 29
ALL_DOWN, FATAL = -187, -150


class FakeMessage:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def __len__(self) -> int:
        return len(self._value)


@dataclass
class FakeSender:
    """Keeps what it is given until it is told what becomes of it."""

    told: Mapping[str, object]
    room: int = 1_000_000
    refuses: KafkaException | None = None
    sent: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    waiting: list[tuple[Callable[[KafkaError | None, Message], None], bytes]] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    delivers_on_flush: bool = True

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes,
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None:
        if self.refuses is not None:
            raise self.refuses
        if len(self.waiting) >= self.room:
            raise BufferError("Local: Queue full")
        self.sent.append((topic, key, value))
        self.waiting.append((on_delivery, value))

    def poll(self, timeout: float) -> int:
        self.polls.append(timeout)
        return 0

    def deliver(self, count: int | None = None, error: KafkaError | None = None) -> None:
        for _ in range(len(self.waiting) if count is None else count):
            on_delivery, value = self.waiting.pop(0)
            on_delivery(error, FakeMessage(value))  # type: ignore[arg-type]  # as much of one as is asked

    def flush(self, timeout: float) -> int:  # noqa: ARG002  # nothing here takes long
        if self.delivers_on_flush:
            self.deliver()
        return len(self.waiting)

    def purge(self) -> None:
        self.deliver(error=KafkaError(PURGED))

    def fail(self, error: KafkaError) -> None:
        callback = self.told["error_cb"]
        assert callable(callback)
        callback(error)


@dataclass
class Bench:
    tally: Tally = field(default_factory=Tally)
    senders: list[FakeSender] = field(default_factory=list)
    unprepared: str = ""

    def topic(self) -> UsageTopic:
        return UsageTopic(TOPICS, self.prepare, self.tally, lambda: NOW_S, self.new_sender)

    def prepare(self) -> Properties:
        if self.unprepared:
            raise StoreError(self.unprepared)
        return {"acks": "all"}

    def new_sender(self, told: Mapping[str, object]) -> FakeSender:
        self.senders.append(FakeSender(told))
        return self.senders[-1]

    @property
    def sender(self) -> FakeSender:
        return self.senders[-1]


def opened() -> tuple[Bench, UsageTopic]:
    bench = Bench()
    topic = bench.topic()
    topic.open()
    return bench, topic


def test_usage_records_of_a_client_are_sent_with_one_key() -> None:
    bench, topic = opened()
    topic.open()
    assert len(bench.senders) == 1
    record = usage_record(3, user="älice", client_id="app")
    assert topic.write(Kind.USAGE, [record]) == 1
    assert topic.write(Kind.TRACE, [trace_record()]) == 1
    (first, first_key, value), (second, second_key, _) = bench.sender.sent
    assert (first, second) == ("usage", "usage-trace")
    assert (first_key, second_key) == ("älice/app".encode(), b"alice/app")
    assert msgspec.json.decode(value, type=UsageRecord) == record


def test_a_usage_record_counts_as_written_once_acknowledged() -> None:
    bench, topic = opened()
    topic.write(Kind.USAGE, [usage_record(1), usage_record(2)])
    assert (bench.tally.unacknowledged, bench.tally.written[Kind.USAGE]) == (2, 0)
    bench.sender.deliver(1)
    assert (bench.tally.unacknowledged, bench.tally.written[Kind.USAGE]) == (1, 1)
    bench.sender.deliver()
    assert bench.tally.written_bytes == sum(len(value) for _topic, _key, value in bench.sender.sent)
    assert bench.tally.last_written_s == NOW_S


def test_a_full_producer_buffer_takes_some_usage_records_and_delays_the_next_write() -> None:
    bench, topic = opened()
    bench.sender.room = 2
    records = [usage_record(number) for number in range(3)]
    assert topic.write(Kind.USAGE, records) == 2
    assert bench.sender.polls == [0]
    assert topic.write(Kind.USAGE, records[2:]) == 0
    assert bench.sender.polls[1] > 0
    bench.sender.deliver()
    assert topic.write(Kind.USAGE, records[2:]) == 1
    assert bench.tally.unacknowledged == 1


@pytest.mark.parametrize(
    ("code", "told"),
    [(TIMED_OUT, "timed out"), (DENIED, "allow Weir's principal to Read, Write and Describe it")],
)
def test_undelivered_usage_records_are_counted_and_reported_until_a_delivery(code: int, told: str) -> None:
    bench, topic = opened()
    topic.write(Kind.USAGE, [usage_record(1), usage_record(2)])
    bench.sender.deliver(1, KafkaError(code))
    assert bench.tally.dropped[Loss.UNDELIVERED] == 1
    assert bench.tally.failure.startswith("cannot write to the topic usage: ")
    assert told in bench.tally.failure
    bench.sender.deliver()
    assert (bench.tally.failure, bench.tally.unacknowledged) == ("", 0)


def test_unreachable_brokers_are_reported_before_usage_records_are_lost() -> None:
    bench, topic = opened()
    bench.sender.fail(KafkaError(ALL_DOWN))
    assert bench.tally.failure == "cannot write to the topic usage: no broker answers"
    assert topic.write(Kind.USAGE, [usage_record()]) == 1, "librdkafka keeps and sends it"


def test_a_fatal_producer_error_counts_pending_usage_records_and_makes_a_new_producer() -> None:
    bench, topic = opened()
    topic.write(Kind.USAGE, [usage_record(1)])
    bench.sender.delivers_on_flush = False
    bench.sender.fail(KafkaError(FATAL, "gone", True))
    with pytest.raises(OutletError, match="gone"):
        topic.write(Kind.USAGE, [usage_record(2)])
    topic.open()
    assert len(bench.senders) == 2
    assert bench.tally.dropped[Loss.UNDELIVERED] == 1
    assert topic.write(Kind.USAGE, [usage_record(2)]) == 1


def test_closing_the_usage_topic_waits_for_acknowledgements() -> None:
    bench, topic = opened()
    topic.write(Kind.USAGE, [usage_record(1)])
    topic.close(5)
    assert bench.tally.written[Kind.USAGE] == 1
    topic.open()
    topic.write(Kind.USAGE, [usage_record(2)])
    bench.sender.delivers_on_flush = False
    topic.close(5)
    assert bench.tally.dropped == {**dict.fromkeys(Loss, 0), Loss.SHUTDOWN: 1}
    assert bench.tally.unacknowledged == 0


def test_every_usage_record_is_delivered_or_counted_as_dropped() -> None:
    bench = Bench()
    writer = Writer(bench.topic(), bench.tally, 250, lambda: 0.0)
    writer.put(Kind.USAGE, [usage_record(number) for number in range(300)])
    for _ in range(3):
        writer.turn()
    assert (bench.tally.unacknowledged, bench.tally.queued) == (250, 0)
    writer.put(Kind.USAGE, [usage_record()])
    bench.sender.deliver(100)
    writer.put(Kind.USAGE, [usage_record()] * 101)
    writer.start()
    writer.close(20)
    assert bench.tally.written[Kind.USAGE] == 350
    assert bench.tally.dropped == {**dict.fromkeys(Loss, 0), Loss.QUEUE_FULL: 52}


@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka_accepts_the_usage_producers_properties(idempotent: bool) -> None:
    told = sender_properties(
        properties(load(None, {"upstream": "127.0.0.1:1"})), 100_000, idempotent=idempotent
    )
    Producer(told).purge()
    assert (told["acks"], told["enable.idempotence"]) == ("all", idempotent)
