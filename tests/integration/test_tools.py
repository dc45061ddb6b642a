"""Kafka's own tools, of the broker's release, do through Weir what they do without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import Librdkafka, create_topic
from tests.clients.pairs import VERSIONS
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import GENEROUS, assert_no_complaint
from tests.java.kafka_tools import KafkaTools
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.waiting import eventually

pytestmark = [pytest.mark.broker]

RECORDS, RECORD_BYTES, PARTITIONS = 5000, 1000, 3
NEW = VERSIONS[1:]
PATIENCE_S = 30.0
"""Controllers answer before every broker knows."""


@pytest.mark.parametrize("version", core_at(NEW, core=("4.4.0",)))
def test_kafka_topics_creates_describes_grows_and_deletes_topics(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    tools = KafkaTools(cluster, weir.bootstrap)
    said = tools.topics("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    assert f"Created topic {topic}." in said
    assert eventually(lambda: topic in tools.list_topics(), PATIENCE_S)
    assert tools.partitions(topic) == {0: 0, 1: 0}
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert eventually(lambda: tools.partitions(topic) == {0: 0, 1: 0, 2: 0}, PATIENCE_S)
    tools.topics("--delete", "--topic", topic)
    assert eventually(lambda: topic not in tools.list_topics(), PATIENCE_S)
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_perf_tests_send_and_receive_every_record(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic, PARTITIONS)
    tools = KafkaTools(cluster, weir.bootstrap)
    assert tools.produce(topic, RECORDS, RECORD_BYTES) == RECORDS
    if version == "0.10.2.2":
        # That release's perf test gives up after a second without records: on a busy machine it is run again.
        assert eventually(lambda: tools.consume(topic, RECORDS, topic) == RECORDS, PATIENCE_S)
    else:
        assert tools.consume(topic, RECORDS, topic) == RECORDS
    assert topic in tools.list_groups()
    offsets = tools.offsets(topic, topic)
    assert set(offsets) == set(range(PARTITIONS))
    assert all(current == end for current, end in offsets.values())
    assert sum(end for _, end in offsets.values()) == RECORDS
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", NEW)
def test_kafka_consumer_groups_resets_offsets_and_deletes_a_group(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    client = Librdkafka()
    client.produce(weir.bootstrap, topic, [b"%d" % number for number in range(10)])
    client.consume(weir.bootstrap, topic, 10, group=topic)
    tools = KafkaTools(cluster, weir.bootstrap)
    assert tools.offsets(topic, topic) == {0: (10, 10)}
    tools.groups("--reset-offsets", "--group", topic, "--topic", topic, "--to-offset", "4", "--execute")
    assert tools.offsets(topic, topic) == {0: (4, 10)}
    again = client.consume(weir.bootstrap, topic, 6, group=topic)
    assert again.values == [b"%d" % number for number in range(4, 10)]
    said = tools.groups("--delete", "--group", topic)
    assert f"Deletion of requested consumer groups ('{topic}') was successful." in said
    assert topic not in tools.list_groups()
    assert_no_complaint(weir.log)


def test_kafkas_consumer_perf_test_runs_in_the_new_group_protocol(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """KIP-848."""
    cluster = kafka_cluster("4.4.0")
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic, PARTITIONS)
    tools = KafkaTools(cluster, weir.bootstrap)
    tools.produce(topic, RECORDS, RECORD_BYTES)
    config = tmp_path / "consumer.properties"
    config.write_text("group.protocol=consumer\n")
    assert tools.consume(topic, RECORDS, topic, "--consumer.config", str(config)) == RECORDS
    assert "consumer" in tools.groups("--describe", "--group", topic, "--state").lower()
    assert sum(current for current, _ in tools.offsets(topic, topic).values()) == RECORDS
    assert_no_complaint(weir.log)


def test_tools_of_kafka_3_9_work_at_a_broker_of_0_10(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """They create and list topics, produce and consume; docs/reference/compatibility.md tells what they
    refuse.
    """
    weir = start_weir(kafka_cluster("0.10.2.2").bootstrap, GENEROUS)
    tools = KafkaTools(kafka_cluster("3.9.1"), weir.bootstrap)
    tools.topics("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    assert eventually(lambda: topic in tools.list_topics(), PATIENCE_S)
    assert tools.produce(topic, RECORDS, RECORD_BYTES, config={"enable.idempotence": "false"}) == RECORDS
    assert tools.consume(topic, RECORDS, topic) == RECORDS
    assert_no_complaint(weir.log)
