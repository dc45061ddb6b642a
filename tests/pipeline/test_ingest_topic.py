"""Ingest from a real broker's topic, with the connector's locked jars, in several runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.fixtures import StartCluster, kafka_cluster
from tests.pipeline.conftest import CommandsHere
from tests.pipeline.usage_files import NOON_MS, usage

__all__ = ["kafka_cluster"]

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 1000


def send(bootstrap: str, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def ingest(lake: Path, bootstrap: str, topic: str) -> tuple[str, ...]:
    """Return the arguments of `weir` for this job."""
    job = ("pipeline", "ingest", "--lake", str(lake), "--once", "--json", "--master", "local[2]")
    return (*job, "--topic", topic, "--bootstrap-servers", bootstrap, "--batch-records", "600")


def test_ingest_reads_each_record_of_a_topic_once(
    kafka_cluster: StartCluster, commands_here: CommandsHere, tmp_path: Path
) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    send(
        bootstrap, "weir-usage", *(usage(NOON_MS + row, f"c{row}") for row in range(ROWS)), None, b"no record"
    )
    (first,) = commands_here([ingest(tmp_path, bootstrap, "weir-usage")], tmp_path)
    assert (first.exit_code, first.errors) == (0, "")
    outcome = json.loads(first.output)
    assert outcome["read"] == {
        "usage lines": ROWS + 2,
        "trace lines": 0,
    }  # the topic weir-usage-trace does not exist
    assert outcome["wrote"] == {"usage records": ROWS, "trace records": 0, "rejected usage": 2}

    send(bootstrap, "weir-usage", usage(NOON_MS, "more"))
    jobs = [ingest(tmp_path, bootstrap, "weir-usage"), ingest(tmp_path / "other", bootstrap, "no-such-topic")]
    second, missing = commands_here(jobs, tmp_path)
    assert json.loads(second.output)["read"] == {"usage lines": 1, "trace lines": 0}
    assert (missing.exit_code, missing.output) == (2, "")
    assert missing.errors.startswith("weir: topic no-such-topic: the topic does not exist")
    assert missing.errors.count("\n") == 1
