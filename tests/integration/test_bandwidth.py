"""Byte-rate quotas, held in front of real brokers by real clients; and those who have none are not slowed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients import Client, Consumed, KafkaPython, Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.integration.conftest import StartWeir
from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.raw import NEW, Answer, Behaviour, RawClient, drive, fetch, fill, leaders, produce
from tests.raw.rates import mean_rate, trend_rate

pytestmark = [pytest.mark.broker, pytest.mark.measured]

QUOTA = 1_000_000
"""bytes/s"""
WINDOW = ("--set", "quota_window_num=3")
BURST = 3 * QUOTA
STEADY = 27 * QUOTA
TOLERANCE = 0.2
SIZE = 10_000
PATIENCE_S = 150.0
COUNT = (BURST + STEADY) // SIZE

QUOTAS = f"""
[[quota]]
client_id = "<default>"
consumer_byte_rate = {QUOTA}

[[quota]]
client_id = "writer-librdkafka"
producer_byte_rate = {QUOTA}

[[quota]]
client_id = "writer-kafka-python"
producer_byte_rate = {QUOTA}
"""
CLIENTS: tuple[Client, ...] = (Librdkafka(), KafkaPython())


class Load:
    """The messages of a test, and the clients' work on them; rates in bytes/s, throttle times in ms."""

    def __init__(self, cluster: Cluster, weir: Weir) -> None:
        self._direct = cluster.bootstrap
        self._bootstrap = weir.bootstrap
        self.messages = some_messages(COUNT, SIZE)

    def write(self, client: Client, topic: str) -> float:
        client_id = f"writer-{client.name}"
        produced = client.produce(
            self._bootstrap, topic, self.messages, client_id=client_id, timeout_s=PATIENCE_S
        )
        return produced.throttle_max_ms

    def watch(self, topic: str) -> float:
        """Read all from the broker itself, as it is written. Returns the rate after the burst."""
        return self._rate(Librdkafka().consume(self._direct, topic, COUNT, timeout_s=PATIENCE_S))

    def read(self, client: Client, topic: str) -> tuple[float, float]:
        """Read all through Weir. Returns (rate after the burst, largest throttle time)."""
        client_id = f"reader-{client.name}"
        seen = client.consume(self._bootstrap, topic, COUNT, client_id=client_id, timeout_s=PATIENCE_S)
        return self._rate(seen), seen.throttle_max_ms

    def _rate(self, seen: Consumed) -> float:
        assert sorted(seen.values) == sorted(self.messages)
        arrived = [Answer(record.at_s, len(record.value), 0) for record in seen.records]
        return trend_rate(arrived, arrived[BURST // SIZE].at_s, arrived[-1].at_s)


@pytest.mark.parametrize("version", core_at(["0.10.2.2", "4.4.0"], core=("4.4.0",)))
def test_real_clients_are_held_to_their_byte_rates(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    load = Load(cluster, start_weir(cluster.bootstrap, QUOTAS, options=WINDOW))
    written = {client: f"{topic}-{client.name}" for client in CLIENTS}
    for name in (topic, *written.values()):
        create_topic(cluster.bootstrap, name)
    Librdkafka().produce(cluster.bootstrap, topic, load.messages)
    with ThreadPoolExecutor() as pool:
        writing = {client.name: pool.submit(load.write, client, to) for client, to in written.items()}
        watching = {client.name: pool.submit(load.watch, to) for client, to in written.items()}
        reading = {client.name: pool.submit(load.read, client, topic) for client in CLIENTS}
        seen = {
            **{f"{who} writes": (watching[who].result(), told.result()) for who, told in writing.items()},
            **{f"{who} reads": both.result() for who, both in reading.items()},
        }
    assert {what: rate for what, (rate, _) in seen.items() if abs(rate / QUOTA - 1) > TOLERANCE} == {}
    assert {what for what, (_, throttle_ms) in seen.items() if throttle_ms <= 0} == set()


MUTED_QUOTA = 10_000
MUTED_BYTES = 300_000
"""A request of that size makes its sender wait for 20 s. A fetch gets a third of it
(docs/reference/quotas.md, fetch cap): the second one waits for 10 s, and all others with it.
"""
NEIGHBOURS_FROM_S, NEIGHBOURS_UNTIL_S = 6.0, 9.5
"""Behind the 5 s that a first produce request of a connection is held, and before the 10 s are over."""
NEIGHBOUR_BYTES = 5_000
SHARE_KEPT = 0.5
"""Twins work at the same moments, so that the machine's other work slows both. Still they compete for its
cores: with nobody muted, one had 0.84 to 1.17 of the other's speed on two busy cores. One that waited for
those who are muted would have next to nothing.
"""


def test_an_unlimited_neighbour_keeps_its_speed_while_others_are_muted(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """Its speed is compared with that of a twin, at the same time, who has a Weir of its own."""
    cluster = kafka_cluster("3.9.1")
    quotas = (
        f'[[quota]]\nclient_id = "muted"\n'
        f"producer_byte_rate = {MUTED_QUOTA}\nconsumer_byte_rate = {MUTED_QUOTA}\n"
    )
    crowded, alone = (start_weir(cluster.bootstrap, quotas) for _ in range(2))
    create_topic(cluster.bootstrap, topic)
    fill(cluster.bootstrap, topic)
    address = {weir: leaders(("127.0.0.1", weir.port), topic)[0] for weir in (crowded, alone)}
    rude = Behaviour(obeys=False, depth=3, connections=10)
    muted = [
        RawClient("muted", address[crowded], build(NEW, "muted", topic, MUTED_BYTES), rude)
        for build in (produce, fetch)
    ]
    neighbours = {
        (build.__name__, weir): RawClient(
            "neighbour",
            address[weir],
            build(NEW, "neighbour", topic, NEIGHBOUR_BYTES),
            Behaviour(),
            begins_s=NEIGHBOURS_FROM_S,
        )
        for build in (produce, fetch)
        for weir in (crowded, alone)
    }
    drive([*muted, *neighbours.values()], NEIGHBOURS_UNTIL_S)
    for client in muted:
        assert max(answer.throttle_ms for answer in client.answers) > 1000 * NEIGHBOURS_UNTIL_S
        assert mean_rate(client.answers, NEIGHBOURS_FROM_S, NEIGHBOURS_UNTIL_S) == 0
    speed = {
        key: mean_rate(client.answers, NEIGHBOURS_FROM_S, NEIGHBOURS_UNTIL_S)
        for key, client in neighbours.items()
    }
    kept = {build: speed[build, crowded] / speed[build, alone] for build in ("produce", "fetch")}
    assert {build: share for build, share in kept.items() if not share > SHARE_KEPT} == {}
