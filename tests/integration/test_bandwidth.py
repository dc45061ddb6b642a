"""Byte-rate quotas, held in front of real brokers by real clients.

Kafka's windows let a client spend ten windows' worth at once from cold, and forget that burst eleven seconds
later (docs/quotas.md): rates swing for tens of seconds, at a broker too. So the burst is left out, and what
follows is measured over 30 to 40 s. Message bytes are counted: a little less than what the quota counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.clients import Client, KafkaPython, Librdkafka, create_topic
from tests.clients.test_clients import VERSIONS, some_messages

if TYPE_CHECKING:
    from tests.integration.conftest import StartWeir
    from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

QUOTA = 1_000_000
"""bytes/s"""
BURST = 11 * QUOTA
STEADY = 36 * QUOTA
TOLERANCE = 0.2
SIZE = 10_000
PATIENCE_S = 150.0

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

[[quota]]
client_id = "neighbour"
producer_byte_rate = 1000000000
consumer_byte_rate = 1000000000
"""
CLIENTS: tuple[Client, ...] = (Librdkafka(), KafkaPython())


class Load:
    """The messages of a test, and the clients' work on them; rates in bytes/s, throttle times in ms."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.burst = some_messages(BURST // SIZE, SIZE)
        self.steady = some_messages(STEADY // SIZE, SIZE, seed=2)

    def write(self, client: Client, topic: str, client_id: str) -> tuple[float, float]:
        """Spend the burst, then measure. Returns (rate, largest throttle time)."""
        client.produce(self.bootstrap, topic, self.burst, client_id=client_id, timeout_s=PATIENCE_S)
        steady = client.produce(self.bootstrap, topic, self.steady, client_id=client_id, timeout_s=PATIENCE_S)
        return STEADY / steady.seconds, steady.throttle_max_ms

    def read(self, client: Client, topic: str) -> tuple[float, float]:
        """Read all; measure from the end of the burst on. Returns (rate, largest throttle time)."""
        count = len(self.burst + self.steady)
        seen = client.consume(
            self.bootstrap, topic, count, client_id=f"reader-{client.name}", timeout_s=PATIENCE_S
        )
        assert seen.values == self.burst + self.steady
        steady_s = seen.records[-1].at_s - seen.records[len(self.burst)].at_s
        return STEADY / steady_s, seen.throttle_max_ms

    def unlimited(self, topic: str) -> float:
        """Write as fast as it goes. Returns the rate."""
        return BURST / Librdkafka().produce(self.bootstrap, topic, self.burst, client_id="neighbour").seconds


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_are_held_to_their_quotas_and_a_neighbour_is_not(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    load = Load(start_weir(cluster.bootstrap, QUOTAS).bootstrap)
    topics = [f"{topic}-read", f"{topic}-beside", *(f"{topic}-{client.name}" for client in CLIENTS)]
    for name in topics:
        create_topic(cluster.bootstrap, name)
    Librdkafka().produce(cluster.bootstrap, topics[0], load.burst + load.steady)
    with ThreadPoolExecutor() as pool:
        limited = {
            **{
                f"{client.name} writes": pool.submit(
                    load.write, client, f"{topic}-{client.name}", f"writer-{client.name}"
                )
                for client in CLIENTS
            },
            **{f"{client.name} reads": pool.submit(load.read, client, topics[0]) for client in CLIENTS},
        }
        unlimited = pool.submit(load.unlimited, topics[1]).result()
        seen = {what: future.result() for what, future in limited.items()}
    assert {what: rate for what, (rate, _) in seen.items() if abs(rate / QUOTA - 1) > TOLERANCE} == {}
    assert {what for what, (_, throttle_ms) in seen.items() if throttle_ms <= 0} == set()
    assert unlimited > 3 * QUOTA
