"""Nothing is lost, doubled, reordered or changed on its way through Weir, whatever client and broker."""

from __future__ import annotations

from struct import Struct

import pytest

from tests.clients import Acks, Client, Librdkafka, create_topic, create_topics
from tests.clients.exchange import assert_exchanged, assert_group_goes_on, part, some_messages
from tests.clients.pairs import PAIRS, VERSIONS
from tests.clients.worker_client import WorkerClient
from tests.integration.conftest import StartWeir
from tests.integration.weir_log import GENEROUS, assert_no_complaint, entries
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at

pytestmark = [pytest.mark.broker]


def with_codecs(client: Client) -> Client:
    return type(client)(client.release, codecs=True) if isinstance(client, WorkerClient) else client


CORE = {"librdkafka-0.10.2.2", "librdkafka-3.9.1", "aiokafka-4.4.0"}
"""Each broker once; `make test` runs these. kafka-python's frames are in the core of `test_wire`."""
MATRIX = [
    pytest.param(
        with_codecs(client),
        version,
        id=f"{client.name}-{version}",
        marks=[
            *([] if isinstance(client, Librdkafka) else [pytest.mark.oracle]),  # its codecs are fetched
            *([pytest.mark.core] if f"{client.name}-{version}" in CORE else []),
        ],
    )
    for client, version in PAIRS
]
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""By the code that a batch carries in its attributes."""
COMPRESSIBLE = [bytes([65 + number % 26]) * 1000 for number in range(300)]
LOSES_ACKS_0 = {"kafka-python-2.3.3"}
"""See KafkaPython: these releases lose them by themselves."""

BATCH_HEAD = Struct(">qi4xb")  # first offset, length of the rest, CRC or leader epoch, magic
ATTRIBUTES_V1, ATTRIBUTES_V2 = Struct(">17xB"), Struct(">22xB")


@pytest.mark.parametrize(("client", "version"), MATRIX)
def test_records_arrive_once_in_order_unchanged_and_a_group_goes_on_where_it_committed(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, client: Client, version: str
) -> None:
    """With every acks, every compression that the broker knows, and messages of 1 MB."""
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    acks: list[Acks] = [1, "all"] if client.name in LOSES_ACKS_0 else [0, 1, "all"]
    codecs = [
        codec for codec in CODECS if (codec, version) != ("zstd", "0.10.2.2")
    ]  # it came with 2.1 (KIP-110)
    parts = [*(f"acks-{each}" for each in acks), "megabytes", "group", *codecs]
    names = {name: f"{topic}-{name}" for name in parts}
    create_topics(weir.bootstrap, list(names.values()))
    with client.running() as running:
        for each in acks:
            with part(name := f"acks-{each}"):
                assert_exchanged(running, weir.bootstrap, names[name], some_messages(2000, 500), acks=each)
        with part("megabytes"):
            assert_exchanged(running, weir.bootstrap, names["megabytes"], some_messages(20, 1 << 20))
        with part("group"):
            assert_group_goes_on(running, weir.bootstrap, names["group"])
        for codec in codecs:
            with part(codec):
                config = {compression_option(client): codec}
                assert_exchanged(running, weir.bootstrap, names[codec], COMPRESSIBLE, config=config)
                assert stored_codecs(cluster, names[codec]) == {CODECS[codec]}
    assert weir.stop() == 0
    assert_no_complaint(weir.log)


def compression_option(client: Client) -> str:
    return "compression.type" if isinstance(client, Librdkafka) else "compression_type"


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


@pytest.mark.parametrize("version", core_at(VERSIONS, core=("3.9.1",)))
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
    served = {entry["node_id"] for entry in entries(weir.log) if entry["event"] == "connection closed"}
    assert weir.stop() == 0
    assert served | {entry["node_id"] for entry in entries(weir.log) if "node_id" in entry} == {0, 1, 2}
    assert_no_complaint(weir.log)


def test_over_ipv6(kafka_cluster: StartCluster, start_weir: StartWeir, topic: str) -> None:
    cluster = kafka_cluster("3.9.1")
    weir = start_weir(cluster.bootstrap, GENEROUS, host="::1")
    create_topic(weir.bootstrap, topic)
    client = Librdkafka()
    messages = some_messages(100, 100)
    client.produce(weir.bootstrap, topic, messages)
    assert client.consume(weir.bootstrap, topic, len(messages)).values == messages
