"""The topic of shared usage: which records a Weir reads at its start, whatever its clock says."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition

from weir.proxy.control.sharing.topic import KEPT_MS, beginning, wait_for_leader

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

NEWEST_MS: Final = 1_763_775_570_000
"""Time (ms) of the newest record, on the broker's clock: days before the time of the test's own clock."""

UNKNOWN: Final = 3
NO_LEADER: Final = 5
NOT_ALLOWED: Final = 29
"""Kafka's error codes UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED."""


@dataclass
class Record:
    kind: int
    at_ms: int

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.at_ms

    def error(self) -> KafkaError | None:
        return None


class Topic:
    """Stands for a consumer, and the partition that it reads; the first record has the offset 5."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self._next = 0

    def get_watermark_offsets(self, _at: object, timeout: float, *, cached: bool) -> tuple[int, int]:
        assert timeout
        assert not cached
        return 5, 5 + len(self._records)

    def assign(self, at: list[TopicPartition]) -> None:
        self._next = at[0].offset - 5

    def poll(self, _timeout_s: float) -> Record | None:
        self._next += 1
        return self._records[self._next - 1] if self._next <= len(self._records) else None

    def offsets_for_times(self, at: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout
        offsets = (5 + n for n, record in enumerate(self._records) if record.at_ms >= at[0].offset)
        return [TopicPartition(at[0].topic, at[0].partition, next(offsets))]


class NewTopic:
    """A producer that learns these things about a topic, one at each call; the last one again."""

    def __init__(self, *told: KafkaError | int) -> None:
        self._told = list(told)
        self.pauses = 0

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        assert timeout
        told = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        error, partitions = (
            (told, {}) if isinstance(told, KafkaError) else (None, {0: SimpleNamespace(leader=told)})
        )
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions, error=error)})

    def pause(self, _seconds: float) -> None:
        self.pauses += 1


@pytest.mark.parametrize(
    ("told", "pauses"),
    [
        ([1], 0),
        ([KafkaError(UNKNOWN), KafkaError(NO_LEADER), -1, 1], 3),
        ([KafkaError(NOT_ALLOWED)], 0),  # reading the topic fails with this reason
        ([-1], 50),
    ],
)
def test_a_new_topic_is_read_when_its_partition_has_a_leader_or_after_5_s(
    told: list[KafkaError | int], pauses: int
) -> None:
    topic = NewTopic(*told)
    wait_for_leader(cast("Producer", topic), "__weir_usage", topic.pause)
    assert topic.pauses == pauses


def begin(records: list[Record]) -> int:
    found = beginning(cast("Consumer", Topic(records)), "__weir_usage")
    assert (found.topic, found.partition) == ("__weir_usage", 0)
    return found.offset


def test_a_weir_reads_from_a_minute_before_the_newest_record_on_the_brokers_clock() -> None:
    ages_ms = [KEPT_MS + 2, KEPT_MS + 1, KEPT_MS, 30_000, 0]
    assert begin([Record(TIMESTAMP_LOG_APPEND_TIME, NEWEST_MS - age_ms) for age_ms in ages_ms]) == 7


def test_a_weir_begins_at_the_end_of_an_empty_topic() -> None:
    assert begin([]) == 5


@pytest.mark.parametrize("at_ms", [0, NEWEST_MS, 2 * NEWEST_MS])
def test_times_of_writers_decide_nothing(at_ms: int) -> None:
    assert begin([Record(TIMESTAMP_CREATE_TIME, each) for each in (1, 2, at_ms)]) == 8
