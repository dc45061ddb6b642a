"""Every client works with old and new brokers, with nothing in between: what other tests take for granted."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from tests.clients import Client, ClientError, create_topics
from tests.clients.exchange import assert_exchanged, assert_group_goes_on, part, some_messages
from tests.clients.pairs import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, PAIRS, VERSIONS
from tests.kafka.settings import HOST
from tests.raw import set_quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.kafka import Cluster
    from tests.kafka.fixtures import StartCluster


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
