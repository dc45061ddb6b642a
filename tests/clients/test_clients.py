"""Every client works with old and new brokers, with nothing in between: what other tests take for granted."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from tests.clients import Acks, Aiokafka, Client, ClientError, KafkaPython, Librdkafka, create_topics
from tests.kafka.settings import HOST
from tests.raw import set_quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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


DIRECT = [
    pytest.param(client, version, id=f"{client.name}-{version}", marks=marks(client))
    for client, version in PAIRS
    if client in (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA)
    or (client.name, version) == ("aiokafka-0.12.0", "0.10.2.2")
]
"""Each library once per broker: its newest release that speaks with that broker."""
LIMIT = 25_000
"""bytes/s: a broker lets a client have ten seconds' worth before it throttles."""
BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")

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


def assert_exchanged(
    client: Client,
    bootstrap: str,
    topic: str,
    messages: list[bytes],
    *,
    acks: Acks = "all",
    config: Mapping[str, Any] | None = None,
) -> None:
    """The client sends messages to an empty topic and reads them; `config` is the producer's."""
    produced = client.produce(bootstrap, topic, messages, acks=acks, config=config)
    consumed = client.consume(bootstrap, topic, len(messages))
    assert_arrived(acks, consumed, messages)
    assert (produced.throttle_max_ms, consumed.throttle_max_ms) == (0, 0)


def assert_group_goes_on(client: Client, bootstrap: str, topic: str) -> None:
    """A second consumer of a group begins where the first one, which has left, has committed."""
    first, second = some_messages(300, 100), some_messages(300, 100, seed=2)
    seen = []
    for messages in (first, second):
        client.produce(bootstrap, topic, messages)
        seen += client.consume(bootstrap, topic, len(messages), group=topic).values
    assert seen == first + second


@contextmanager
def part(name: str) -> Iterator[None]:
    """A failure within tells in which part of a test it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the part {name!r} of the test")
        raise


@pytest.mark.parametrize(("client", "version"), DIRECT)
def test_client_exchanges_records_with_a_broker_and_its_group_goes_on_where_it_committed(
    kafka_cluster: StartCluster, topic: str, client: Client, version: str
) -> None:
    """Without Weir. Acks 0 and 1 and compression are tried through Weir, in integration/test_records.py."""
    bootstrap = kafka_cluster(version).bootstrap
    records, group = (f"{topic}-{name}" for name in ("records", "group"))
    create_topics(bootstrap, [records, group])
    with client.running() as running:
        with part("records"):
            messages = [*some_messages(500, 100), *some_messages(3, 1 << 20)]
            assert_exchanged(running, bootstrap, records, messages)
        with part("group"):
            assert_group_goes_on(running, bootstrap, group)


@pytest.mark.parametrize("version", VERSIONS[:2])
def test_clients_report_the_throttle_times_of_the_brokers_own_quota(
    kafka_cluster: StartCluster, topic: str, version: str
) -> None:
    """aiokafka reports none."""
    cluster = kafka_cluster(version)
    clients: tuple[Client, ...] = (LIBRDKAFKA, KAFKA_PYTHON)
    names = {client: f"{topic}-{client.name}" for client in clients}
    if version == "0.10.2.2":
        limit_in_zookeeper(cluster, names.values())
    else:
        (port,) = cluster.ports.values()
        set_quotas((HOST, port), {name: dict.fromkeys(BYTE_RATES, LIMIT) for name in names.values()})
    create_topics(cluster.bootstrap, list(names.values()))  # the broker hears of them after the limits
    messages = some_messages(13 * 3, LIMIT // 3)  # 13 seconds' worth

    def exchange(client: Client) -> None:
        # With librdkafka's large default batches 3.9.1 handed out nothing within 60 s: presumably because one
        # batch exceeded the quota of the whole window (250 kB).
        size = {"batch.size" if client is LIBRDKAFKA else "batch_size": LIMIT}
        name = names[client]
        with part(client.name), client.running() as running:
            produced = running.produce(cluster.bootstrap, name, messages, client_id=name, config=size)
            consumed = running.consume(cluster.bootstrap, name, len(messages), client_id=name)
            assert consumed.values == messages
            for seen in (produced, consumed):
                assert max(seen.throttle_ms) == pytest.approx(seen.throttle_max_ms, abs=1)
                assert 0 < seen.throttle_max_ms < 30_000

    side_by_side(exchange, clients)


def limit_in_zookeeper(cluster: Cluster, client_ids: Iterable[str]) -> None:
    """Give client-ids the limit as kafka-configs does it (Kafka's AdminUtils.changeClientIdConfig)."""
    config = {"version": 1, "config": dict.fromkeys(BYTE_RATES, str(LIMIT))}
    zookeeper = KazooClient(cluster.zookeeper)
    zookeeper.start()
    try:
        for client_id in client_ids:
            change = {"version": 2, "entity_path": f"clients/{client_id}"}
            zookeeper.create(f"/config/clients/{client_id}", json.dumps(config).encode(), makepath=True)
            zookeeper.create("/config/changes/config_change_", json.dumps(change).encode(), sequence=True)
    finally:
        zookeeper.stop()
        zookeeper.close()


def test_records_that_do_not_come_are_an_error_of_every_client(
    kafka_cluster: StartCluster, topic: str
) -> None:
    bootstrap = kafka_cluster("3.9.1").bootstrap
    create_topics(bootstrap, [topic])

    def consume(client: Client) -> None:
        with part(client.name), pytest.raises(ClientError, match="0 of 1 records"):
            client.consume(bootstrap, topic, 1, timeout_s=1)

    side_by_side(consume, [LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA])


def side_by_side(what: Callable[[Client], None], clients: Iterable[Client]) -> None:
    """Have each client do it, at once; the first failure, in the clients' order, is raised."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(what, client) for client in clients]:
            done.result()
