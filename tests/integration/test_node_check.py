"""KIP-1242: a load balancer mixes up the ports of Weir's brokers, and clients of Kafka 4.4 notice."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.tap import HOST, Conversation, Tap
from tests.integration.topic_contents import records_in
from tests.integration.traffic import create_spread, until
from tests.java import paced
from tests.java.paced import Pace
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at

pytestmark = [pytest.mark.broker]

CLIENT: Final = "4.4.0"
RECORDS_MAX: Final = 20_000
RATE: Final = 50.0


class Balancer(Tap):
    """Relays connections to the ports that `towards` has for theirs, else to the same ports."""

    def __init__(self, ports: range) -> None:
        super().__init__(ports)
        self._towards: Mapping[int, int] = {}
        self._clients: list[socket.socket] = []

    def lead(self, towards: Mapping[int, int]) -> None:
        """Change `towards`, and cut all connections."""
        self._towards = towards
        for client in self._clients:
            with suppress(OSError):  # it may have gone
                client.shutdown(socket.SHUT_RDWR)

    def _relay(self, client: socket.socket, port: int, conversation: Conversation) -> None:
        self._clients.append(client)
        super()._relay(client, self._towards.get(port, port), conversation)


@pytest.mark.parametrize("release", core_at(["2.8.2", "3.9.1", "4.4.0"], core=["3.9.1"]))
def test_java_clients_bootstrap_again_while_ports_are_mixed_up_and_lose_nothing(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path, release: str
) -> None:
    """Weir answers for brokers before 4.4. At the right ports, no client is told to bootstrap again."""
    admin, stop = Admin(), tmp_path / "stop"
    cluster = kafka_cluster(release, brokers=2)
    create_spread(cluster.bootstrap, topic, [[0], [1]])
    weir = start_weir(cluster.bootstrap, options=("--advertised-host", HOST, *admin.options))
    first, second = weir.port + 1, weir.port + 2

    def count(name: str, *label: str) -> float:
        rows = admin.metrics().rows(name).items()
        return sum(number for labels, number in rows if not label or label in labels)

    def produced() -> float:
        return count("weir_requests_total", "api", "Produce")

    with Balancer(range(weir.port, second + 1)) as balancer, ThreadPoolExecutor(1) as pool:
        config = {"bootstrap.servers": f"{HOST}:{weir.port}"}
        sending = pool.submit(paced.produce, CLIENT, config, Pace(topic, 2, RECORDS_MAX, RATE, str(stop)))
        try:
            until(lambda: produced() > 50, lambda: "records")
            assert count("weir_wrong_nodes_total") == 0
            balancer.lead({first: second, second: first})
            until(lambda: count("weir_wrong_nodes_total") > 0, lambda: "a client that notices")
            balancer.lead({})
            before = produced()
            until(lambda: produced() > before + 50, lambda: "records at the right ports")
        finally:
            stop.touch()
        sent = sending.result()
    assert {record.error for record in sent} == {None}
    found = records_in(cluster.bootstrap, topic).values()
    assert sorted(int(record.value) for each in found for record in each) == list(range(len(sent)))
