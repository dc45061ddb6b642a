"""`weir pipeline ingest` from the topics of a real broker is killed (-9, with its JVM) repeatedly.

Meanwhile the test reads the tables in a loop, and sees whole batches only. No record is lost or doubled.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.clients import create_topic
from tests.kafka.fixtures import StartCluster, kafka_cluster, topic
from tests.pipeline.killed import SEED, Kill, seen_until_killed
from tests.pipeline.numbered_batches import NumberedBatches, rejected_lines
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Topic
from weir.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kafka_cluster", "topic"]

# Java starts for every kill.
pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = (
    Kill("usage", "during", 2, SEED),
    Kill("trace", "during", 2, SEED + 1),
    Kill("trace", "after", 2),
    Kill("rejected", "after", 3),
)
SENT_BEFORE_A_KILL = 3
"""Number of batches; the batch in which the run before was killed is repeated beside them."""
PARTITIONS = 2
"""Number of partitions; Spark takes half of each batch from each."""
ROWS = 100


def send(bootstrap: str, topic: str, lines: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, line in enumerate(lines):
        producer.produce(topic, line, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_ingest_from_topics_killed_repeatedly_loses_and_doubles_no_record(
    kafka_cluster: StartCluster, spark: SparkSession, tmp_path: Path, topic: str
) -> None:
    bootstrap, lake = kafka_cluster("3.9.1").bootstrap, Lake(str(tmp_path))
    topics = {topic: NumberedBatches("usage", ROWS), f"{topic}-trace": NumberedBatches("trace", ROWS)}
    for name in topics:
        create_topic(bootstrap, name, PARTITIONS)
    bad = [f"bad {number}" for number in range(PARTITIONS)]  # in each batch
    size = ROWS + len(bad)
    options = ("--lake", lake.root, "--topic", topic, "--bootstrap-servers", bootstrap, "--once")
    seen = []
    for number, kill in enumerate(KILLS):
        for name, batches in topics.items():
            for batch in range(number * SENT_BEFORE_A_KILL, (number + 1) * SENT_BEFORE_A_KILL):
                send(bootstrap, name, [*batches.lines(batch), *(line.encode() for line in bad)])
        seen += seen_until_killed(
            kill,
            lambda: [batches.seen(spark, lake) for batches in topics.values()],
            "ingest",
            *options,
            "--batch-records",
            str(size),
        )
    pairs = [pair for earlier, later in pairwise(seen) for pair in zip(earlier, later, strict=True)]
    assert all(before <= after for before, after in pairs)
    assert len(seen) > len(KILLS), "tables grow while they are read"

    source = Topic(topic, bootstrap, batch_records=size)
    ingest(spark, lake, source)
    sent = range(len(KILLS) * SENT_BEFORE_A_KILL)
    for batches in topics.values():
        batches.check_table(spark, lake, sent)
    assert rejected_lines(spark, lake) == Counter(bad * len(sent) * len(topics))
    assert ingest(spark, lake, source).read == {"usage lines": 0, "trace lines": 0}
