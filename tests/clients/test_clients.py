"""Every client works with old and new brokers, with nothing in between: what other tests take for granted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.clients import Acks, Aiokafka, Client, ClientError, KafkaPython, Librdkafka, create_topic

if TYPE_CHECKING:
    from tests.clients import Consumed
    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster

VERSIONS = ["0.10.2.2", "3.9.1", "4.2.0"]
LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA = Librdkafka(), KafkaPython(), Aiokafka()
PAIRS: list[tuple[Client, str]] = [
    *((LIBRDKAFKA, version) for version in VERSIONS),
    *((KAFKA_PYTHON, version) for version in VERSIONS),
    *((KafkaPython("2.3.3"), version) for version in VERSIONS[:2]),
    *((Aiokafka("0.12.0"), version) for version in VERSIONS[:2]),
    *((AIOKAFKA, version) for version in VERSIONS[1:]),
]
"""Which client is tried with which broker; see docs/compatibility.md."""


def marks(client: Client) -> list[pytest.MarkDecorator]:
    """A release that is not the installed one must be fetched."""
    return [] if client in (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA) else [pytest.mark.oracle]


MATRIX = [
    pytest.param(client, version, id=f"{client.name}-{version}", marks=marks(client))
    for client, version in PAIRS
]
CLIENTS = [pytest.param(client, id=client.name) for client in (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA)]
QUOTA_VERSIONS = VERSIONS[:2]
OLD_QUOTAS = ("quota.producer.default", "quota.consumer.default")

pytestmark = [pytest.mark.broker]


def some_messages(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Messages that no compression shrinks and no two of which are alike."""
    source = random.Random(seed)
    return [source.randbytes(size) for _ in range(count)]


def assert_arrived(acks: Acks, consumed: Consumed, messages: list[bytes]) -> None:
    """Each message is there once, unchanged, and in order wherever the clients themselves keep it.

    With acks=0 they do not; on 0.10.2.2 without Weir, kafka-python 3.0.12 queued what it could not hand to
    its connection again, behind what came later (9 runs in 25, with max_in_flight_requests 1 as well), and
    librdkafka 2.16.1 sent its second batch before its first (3 runs in 60).
    """
    if acks == 0:
        assert sorted(consumed.values) == sorted(messages)
    else:
        assert consumed.values == messages
    assert [record.offset for record in consumed.records] == list(range(len(messages)))


@pytest.mark.parametrize(("client", "version"), MATRIX)
def test_each_record_arrives_once_in_order_unchanged(
    kafka_cluster: StartCluster, topic: str, client: Client, version: str
) -> None:
    """Acks 0 and 1 are tried through Weir only, in tests/integration/test_records.py."""
    cluster = kafka_cluster(version)
    create_topic(cluster.bootstrap, topic)
    messages = [*some_messages(500, 100), *some_messages(3, 1 << 20)]
    produced = client.produce(cluster.bootstrap, topic, messages)
    consumed = client.consume(cluster.bootstrap, topic, len(messages))
    assert_arrived("all", consumed, messages)
    assert (produced.throttle_max_ms, consumed.throttle_max_ms) == (0, 0)


@pytest.mark.parametrize(("client", "version"), MATRIX)
def test_a_group_goes_on_where_it_committed(
    kafka_cluster: StartCluster, topic: str, client: Client, version: str
) -> None:
    cluster = kafka_cluster(version)
    create_topic(cluster.bootstrap, topic, partitions=3)
    first, second = some_messages(60, 50, seed=1), some_messages(60, 50, seed=2)
    for messages in (first, second):
        for partition in range(3):
            client.produce(cluster.bootstrap, topic, messages[partition::3], partition=partition)
        consumed = client.consume(cluster.bootstrap, topic, len(messages), group=topic)
        for partition in range(3):
            came = [record.value for record in consumed.records if record.partition == partition]
            assert came == messages[partition::3]


@pytest.mark.parametrize("version", QUOTA_VERSIONS)
@pytest.mark.parametrize("client", CLIENTS[:2])  # aiokafka reports none
def test_throttle_times_of_the_brokers_own_quota_are_reported(
    kafka_cluster: StartCluster, topic: str, client: Client, version: str
) -> None:
    cluster = with_quota(kafka_cluster, version)
    create_topic(cluster.bootstrap, topic)
    messages = some_messages(30, 10_000)
    # With librdkafka's large default batches 3.9.1 handed out nothing within 60 s: presumably because one
    # batch exceeded the quota of the whole window (150 kB).
    small = {"batch.size": 20_000} if client.name == "librdkafka" else {"batch_size": 20_000}
    produced = client.produce(cluster.bootstrap, topic, messages, config=small)
    consumed = client.consume(cluster.bootstrap, topic, len(messages))
    assert consumed.values == messages
    for seen in (produced, consumed):
        assert max(seen.throttle_ms) == pytest.approx(seen.throttle_max_ms, abs=1)
        assert 0 < seen.throttle_max_ms < 30_000


def with_quota(kafka_cluster: StartCluster, version: str) -> Cluster:
    """A cluster where 50 kB/s is the limit of everyone, measured over 3 s."""
    settings = {"quota.window.num": "3"}
    if version == "0.10.2.2":  # such defaults were properties up to 2.8
        return kafka_cluster(version, settings=settings | dict.fromkeys(OLD_QUOTAS, "50000"))
    cluster = kafka_cluster(version, settings=settings)
    limits = "producer_byte_rate=50000,consumer_byte_rate=50000"
    arguments = ["--bootstrap-server", cluster.bootstrap, "--alter", "--add-config", limits]
    done = cluster.run(
        "kafka.admin.ConfigCommand", *arguments, "--entity-type", "clients", "--entity-default"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return cluster


@pytest.mark.parametrize("client", CLIENTS)
def test_what_does_not_come_is_an_error(kafka_cluster: StartCluster, topic: str, client: Client) -> None:
    cluster = kafka_cluster("3.9.1")
    create_topic(cluster.bootstrap, topic)
    with pytest.raises(ClientError, match="0 of 1 records"):
        client.consume(cluster.bootstrap, topic, 1, timeout_s=1)
