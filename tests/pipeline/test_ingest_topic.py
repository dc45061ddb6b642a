"""Ingest from a real broker's topic, with the connector's locked jars, in several runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.fixtures import StartCluster, kafka_cluster
from tests.pipeline.usage_files import NOON_MS, usage

__all__ = ["kafka_cluster"]

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 1000


def send(bootstrap: str, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def ingest(lake: Path, bootstrap: str, topic: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "weir.cli",
        "pipeline",
        "ingest",
        "--lake",
        str(lake),
        "--once",
        "--json",
    ]
    command += ["--master", "local[2]", "--topic", topic, "--bootstrap-servers", bootstrap]
    command += ["--batch-records", "600"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})


def test_ingest_reads_each_record_of_a_topic_once(kafka_cluster: StartCluster, tmp_path: Path) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    send(
        bootstrap, "weir-usage", *(usage(NOON_MS + row, f"c{row}") for row in range(ROWS)), None, b"no record"
    )
    first = ingest(tmp_path, bootstrap, "weir-usage")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    outcome = json.loads(first.stdout)
    assert outcome["read"] == {
        "usage lines": ROWS + 2,
        "trace lines": 0,
    }  # the topic weir-usage-trace does not exist
    assert outcome["wrote"] == {"usage records": ROWS, "trace records": 0, "rejected usage": 2}

    send(bootstrap, "weir-usage", usage(NOON_MS, "more"))
    second = json.loads(ingest(tmp_path, bootstrap, "weir-usage").stdout)
    assert second["read"] == {"usage lines": 1, "trace lines": 0}

    missing = ingest(tmp_path / "other", bootstrap, "no-such-topic")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("weir: topic no-such-topic: the topic does not exist")
    assert missing.stderr.count("\n") == 1
