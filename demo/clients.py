"""Run the clients: a thread per librdkafka producer or consumer, which counts bytes and throttle times."""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from weir.demo.clusters import reason
from weir.demo.errors import DemoError
from weir.demo.measure import ClientCounters

if TYPE_CHECKING:
    from confluent_kafka import Message, ThrottleEvent

MESSAGE: Final = secrets.token_bytes(10_000)
"""Payload of every message, so large that payloads are almost all of a request's bytes, which quotas
count.
"""
REQUEST_BYTES: Final = 128 * 1024
UNDER_WAY_BYTES: Final = 1024 * 1024
"""Maximum number of bytes per partition that a producer keeps queued or unacknowledged."""
MESSAGES_MAX: Final = 100
"""Maximum number of messages to send or receive at a time."""
FILL_BYTES: Final = 4_000_000
"""Number of bytes that are written into each partition that a consumer reads; the consumer reads them
repeatedly.
"""
POLL_S: Final = 0.02
FLUSH_S: Final = 4.0
"""Time (s) for the last acknowledgements: twice that of `UNDER_WAY_BYTES` under the lowest quota."""

Options: TypeAlias = dict[str, str | int | float | bool | Callable[..., None] | None]
TopicPartitions: TypeAlias = tuple[str, tuple[int, ...]]
"""A topic, and the indexes of its partitions that a client uses."""


def _options(bootstrap: str, client_id: str, counters: ClientCounters) -> Options:
    def throttled(event: ThrottleEvent) -> None:
        counters.throttle(round(event.throttle_time * 1000))

    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "throttle_cb": throttled,
        "log_level": 0,
    }


class SteadyPace:
    """Limits the rate of a client's messages; unused allowance accumulates for at most one second."""

    def __init__(self, rate: int) -> None:
        """Start with no allowance at this rate (bytes/s)."""
        self.rate = rate
        self._credit = 0.0
        self._at_s = math.inf

    def messages(self, now_s: float) -> int:
        """Return the number of messages that the rate allows the client to send or take at the time `now_s`
        (s, monotonic).
        """
        earned = max(0.0, now_s - self._at_s) * self.rate
        self._credit = min(self._credit + earned, float(self.rate))
        self._at_s = now_s
        return min(int(self._credit / len(MESSAGE)), MESSAGES_MAX)

    def use(self, messages: int) -> None:
        """Subtract the messages that the client has sent or taken from the allowance."""
        self._credit -= messages * len(MESSAGE)


class ProducerLoop:
    """A Kafka producer that sends messages at its pace, with a bounded number of unacknowledged bytes per
    partition.
    """

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topic_partitions: TopicPartitions,
        counters: ClientCounters,
        pace: SteadyPace,
    ) -> None:
        """Create the producer; librdkafka connects to Weir in the background."""
        self._topic, partitions = topic_partitions
        self._under_way = dict.fromkeys(partitions, 0)
        self._sent = dict.fromkeys(partitions, 0)
        self._counters = counters
        self._pace = pace
        options = _options(bootstrap, client_id, counters)
        self._producer = Producer(options | {"acks": 1, "linger.ms": 5, "batch.size": REQUEST_BYTES})
        self._acknowledged = {number: partial(self._delivered, number) for number in partitions}

    def turn(self) -> None:
        """Send as many messages as the pace and the unacknowledged bytes allow, and handle acknowledgements.
        Raises DemoError if a message was not delivered.
        """
        for _ in range(self._pace.messages(time.monotonic())):
            with_room = [number for number, count in self._under_way.items() if count < UNDER_WAY_BYTES]
            if not with_room:
                break
            self._send(min(with_room, key=self._sent.__getitem__))
        self._producer.poll(POLL_S)

    def _send(self, number: int) -> None:
        self._pace.use(1)
        self._sent[number] += 1
        self._under_way[number] += len(MESSAGE)
        self._producer.produce(self._topic, MESSAGE, partition=number, on_delivery=self._acknowledged[number])

    def _delivered(self, number: int, error: KafkaError | None, _message: Message) -> None:
        self._under_way[number] -= len(MESSAGE)
        if error is None:
            self._counters.payload_bytes += len(MESSAGE)
        else:
            raise DemoError(f"a message to {self._topic} was not delivered: {error.str()}")

    def close(self) -> None:
        """Await the acknowledgements, and close the producer. When Weir stops, it charges waiting requests
        before their time, and a replay does not know that.
        """
        self._producer.flush(FLUSH_S)


class ConsumerLoop:
    """A consumer that reads one partition from beginning to end, repeatedly."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topic_partitions: TopicPartitions,
        counters: ClientCounters,
        pace: SteadyPace,
    ) -> None:
        """Create the consumer; librdkafka connects to Weir in the background."""
        topic, (number, *_) = topic_partitions
        self._start = TopicPartition(topic, number, OFFSET_BEGINNING)
        self._counters = counters
        self._pace = pace
        options: Options = {
            "group.id": topic,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": REQUEST_BYTES,
            "fetch.wait.max.ms": 10,
            "queued.max.messages.kbytes": 2
            * REQUEST_BYTES
            // 1024,  # so that prefetched messages do not hide the rate
            "fetch.queue.backoff.ms": 5,
        }
        self._consumer = Consumer(_options(bootstrap, client_id, counters) | options)
        self._consumer.assign([self._start])

    def turn(self) -> None:
        """Take as many arrived messages as the pace allows. Raises DemoError if the partition cannot be
        read.
        """
        count = self._pace.messages(time.monotonic())
        if count == 0:
            time.sleep(POLL_S)
            return
        for message in self._consumer.consume(count, POLL_S):
            error = message.error()
            if error is None:
                self._pace.use(1)
                self._counters.payload_bytes += len(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                self._consumer.seek(self._start)
            else:
                raise DemoError(f"cannot read {self._start.topic}: {error.str()}")

    def close(self) -> None:
        self._consumer.close()


class ClientThread(threading.Thread):
    """Runs a client until `stop` is called."""

    def __init__(self, start: Callable[[], ProducerLoop | ConsumerLoop]) -> None:
        super().__init__(daemon=True)
        self._start_client = start
        self._stop_soon = threading.Event()
        self.failure = ""

    def run(self) -> None:
        """Run the client until `stop` is called. After an error, `failure` has the reason."""
        try:
            client = self._start_client()
            try:
                while not self._stop_soon.is_set():
                    client.turn()
            finally:
                client.close()
        except DemoError as error:
            self.failure = str(error)
        except KafkaException as error:
            self.failure = f"a client failed: {reason(error)}"

    def stop(self) -> None:
        """Ask the thread to end; call `join` to wait for it."""
        self._stop_soon.set()


def fill(upstream: str, topic_partitions: TopicPartitions) -> None:
    """Write the messages that a consumer reads directly to the cluster at `upstream`, not through Weir.
    Raises DemoError if a message was not delivered.
    """
    topic, (number, *_) = topic_partitions
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    options: Options = {
        "bootstrap.servers": upstream,
        "batch.size": REQUEST_BYTES,
        "log_level": 0,
    }
    producer = Producer(options)
    for _ in range(FILL_BYTES // len(MESSAGE)):
        producer.produce(topic, MESSAGE, partition=number, on_delivery=delivered)
    left = producer.flush(20)
    if left or failures:
        raise DemoError(
            f"cannot write to {topic} at {upstream}: {(failures or ['no answer within 20 s'])[0]}"
        )
