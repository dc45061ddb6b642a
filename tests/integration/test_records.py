"""Nothing is lost, doubled, reordered or changed on its way through Weir, whatever client and broker."""

from __future__ import annotations

import json
from struct import Struct
from typing import TYPE_CHECKING

import pytest

from tests.clients import Aiokafka, KafkaPython, Librdkafka, create_topic
from tests.clients.test_clients import MATRIX, VERSIONS, assert_arrived, some_messages

if TYPE_CHECKING:
    from tests.clients import Acks, Client
    from tests.integration.conftest import StartWeir
    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

GENEROUS = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
"""
"""A quota that is charged with every request and never exceeded."""

WITH_CODECS = [
    *(pytest.param(Librdkafka(), version, id=f"librdkafka-{version}") for version in VERSIONS),
    *(
        pytest.param(client, version, id=f"{client.name}-{version}", marks=pytest.mark.oracle)
        for client, version in (
            *((KafkaPython(codecs=True), version) for version in VERSIONS),
            (Aiokafka("0.12.0", codecs=True), "0.10.2.2"),
            *((Aiokafka(codecs=True), version) for version in VERSIONS[1:]),
        )
    ),
]
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""By the code that a batch carries in its attributes."""

BATCH_HEAD = Struct(">qi4xb")  # first offset, length of the rest, CRC or leader epoch, magic
ATTRIBUTES_V1, ATTRIBUTES_V2 = Struct(">17xB"), Struct(">22xB")


@pytest.mark.parametrize(("client", "version"), MATRIX)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_record_arrives_once_in_order_unchanged(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: Client, version: str, acks: Acks
) -> None:
    if acks == 0 and client.name == "kafka-python-2.3.3":
        acks = 1  # see KafkaPython: that release loses them by itself
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    messages = some_messages(2000, 500)
    client.produce(weir.bootstrap, topic, messages, acks=acks)
    consumed = client.consume(weir.bootstrap, topic, len(messages))
    assert_arrived(acks, consumed, messages)
    assert weir.stop() == 0
    assert_no_complaint(weir.log)


@pytest.mark.parametrize(("client", "version"), MATRIX)
def test_messages_of_one_megabyte_arrive(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: Client, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    messages = some_messages(20, 1 << 20)
    client.produce(weir.bootstrap, topic, messages)
    assert client.consume(weir.bootstrap, topic, len(messages)).values == messages
    assert_no_complaint(weir.log)


@pytest.mark.parametrize(("client", "version"), MATRIX)
def test_a_group_goes_on_where_it_committed(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: Client, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic)
    first, second = some_messages(300, 100), some_messages(300, 100, seed=2)
    client.produce(weir.bootstrap, topic, first)
    seen = client.consume(weir.bootstrap, topic, len(first), group=topic).values
    client.produce(weir.bootstrap, topic, second)
    seen += client.consume(weir.bootstrap, topic, len(second), group=topic).values
    assert seen == first + second
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_broker_of_a_cluster_is_reached_through_weir(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version, brokers=3)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    create_topic(weir.bootstrap, topic, partitions=6)
    client = Librdkafka()
    messages = {number: some_messages(100, 100, seed=number) for number in range(6)}
    for number, some in messages.items():
        client.produce(weir.bootstrap, topic, some, partition=number)
    records = client.consume(weir.bootstrap, topic, 600).records
    for number, some in messages.items():
        assert [record.value for record in records if record.partition == number] == some
    served = {entry["node_id"] for entry in entries(weir.log) if entry["event"] == "session ended"}
    assert weir.stop() == 0
    assert served | {entry["node_id"] for entry in entries(weir.log) if "node_id" in entry} == {0, 1, 2}
    assert_no_complaint(weir.log)


@pytest.mark.parametrize(("client", "version"), WITH_CODECS)
def test_compressed_records_arrive_unchanged_and_compressed(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: Client, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    option = "compression.type" if isinstance(client, Librdkafka) else "compression_type"
    messages = [bytes([65 + number % 26]) * 1000 for number in range(300)]
    for codec, bits in CODECS.items():
        if codec == "zstd" and version == "0.10.2.2":
            continue  # since 2.1 (KIP-110)
        name = f"{topic}-{codec}"
        create_topic(weir.bootstrap, name)
        client.produce(weir.bootstrap, name, messages, config={option: codec})
        assert client.consume(weir.bootstrap, name, len(messages)).values == messages, codec
        assert stored_codecs(cluster, name) == {bits}, codec
    assert_no_complaint(weir.log)


def stored_codecs(cluster: Cluster, topic: str) -> set[int]:
    """The compression codes of all batches that the broker has in its log of partition 0."""
    log = (cluster.directory / "data" / "log-0" / f"{topic}-0" / f"{0:020}.log").read_bytes()
    codes, at = set(), 0
    while at < len(log):
        _offset, length, magic = BATCH_HEAD.unpack_from(log, at)
        (attributes,) = (ATTRIBUTES_V2 if magic == 2 else ATTRIBUTES_V1).unpack_from(log, at)
        codes.add(attributes & 7)
        at += 12 + length
    return codes


def test_over_ipv6(kafka_cluster: StartCluster, start_weir: StartWeir, topic: str) -> None:
    cluster = kafka_cluster("3.9.1")
    weir = start_weir(cluster.bootstrap, GENEROUS, host="::1")
    create_topic(weir.bootstrap, topic)
    client = Librdkafka()
    messages = some_messages(100, 100)
    client.produce(weir.bootstrap, topic, messages)
    assert client.consume(weir.bootstrap, topic, len(messages)).values == messages


def entries(log: str) -> list[dict[str, object]]:
    """The log's lines as values."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def assert_no_complaint(log: str) -> None:
    """Everything that Weir saw, it understood."""
    assert [entry for entry in entries(log) if entry["level"] in ("warning", "error")] == []
