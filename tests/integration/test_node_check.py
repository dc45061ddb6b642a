"""KIP-1242: Weir's ports for its brokers are mixed up, or change, and clients of Kafka 4.4 notice."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.go_programs import go_programs
from tests.integration.tap import HOST, Conversation, Tap
from tests.integration.topic_contents import records_in
from tests.integration.traffic import create_spread, until
from tests.java import paced
from tests.java.paced import Pace
from tests.kafka.fixtures import StartCluster

__all__ = ["go_programs"]  # a fixture

pytestmark = [pytest.mark.broker]

CLIENT: Final = "4.4.0"
RECORDS_MAX: Final = 20_000
RATE: Final = 50.0
FRANZ_GO: Final = "franz-go"
MIXED_UP: Final = [
    pytest.param("java", "3.9.1", id="java-3.9.1", marks=pytest.mark.core),
    pytest.param("java", "4.4.0", id="java-4.4.0"),
    pytest.param(FRANZ_GO, "4.4.0", id="franz-go-4.4.0", marks=pytest.mark.oracle),
]


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


@contextmanager
def producing(
    client: str, release: str, bootstrap: str, topic: str, directory: Path, programs: Path
) -> Iterator[list[int]]:
    """A producer that sends at a fixed rate to both partitions of the topic, until the end of the block. Then
    the list has the number of its records. A record that failed is an error.
    """
    stop = directory / "stop"
    number: list[int] = []

    def java() -> int:
        pace = Pace(topic, 2, RECORDS_MAX, RATE, str(stop))
        sent = paced.produce(CLIENT, {"bootstrap.servers": bootstrap}, pace)
        assert {record.error for record in sent} == {None}
        return len(sent)

    def franz_go() -> int:
        how = "plain" if release.startswith("0.") else "idempotent"
        run = [str(programs / "produce"), bootstrap, topic, str(stop), how]
        said = subprocess.run(run, check=True, capture_output=True, text=True)
        assert not said.stderr
        return int(said.stdout)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(franz_go if client == FRANZ_GO else java)
        try:
            yield number
        finally:
            stop.touch()
        number.append(sending.result())


class Counted:
    """Metrics of a Weir."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __call__(self, name: str, *label: str) -> float:
        rows = self._admin.metrics().rows(name).items()
        return sum(number for labels, number in rows if not label or label in labels)

    def is_there(self) -> bool:
        with suppress(OSError):
            return bool(self._admin.metrics())
        return False

    @property
    def wrong_nodes(self) -> float:
        return self("weir_wrong_nodes_total")

    def wait_for_records(self, more: int = 50) -> None:
        """Wait until clients have sent so many produce requests more."""
        before = self._produced()
        until(lambda: self._produced() >= before + more, lambda: "records")

    def _produced(self) -> float:
        return self("weir_requests_total", "api", "Produce")


def check_delivery(bootstrap: str, topic: str, number: int, *, once: bool) -> None:
    found = [int(record.value) for each in records_in(bootstrap, topic).values() for record in each]
    assert set(found) == set(range(number))
    assert len(found) == number or not once


@pytest.mark.parametrize(("client", "release"), MIXED_UP)
def test_clients_bootstrap_again_while_ports_are_mixed_up_and_lose_nothing(
    kafka_cluster: StartCluster,
    start_weir: StartWeir,
    topic: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    client: str,
    release: str,
) -> None:
    """Weir answers for brokers before 4.4. At the right ports, and at the bootstrap port, no client is told
    to bootstrap again.
    """
    admin = Admin()
    cluster = kafka_cluster(release, brokers=3)  # as other tests have
    create_spread(cluster.bootstrap, topic, [[0], [1]])
    weir = start_weir(cluster.bootstrap, options=("--set", f"advertised_host={HOST}", *admin.options))
    first, second = weir.port + 1, weir.port + 2
    counted = Counted(admin)
    programs = request.getfixturevalue("go_programs") if client == FRANZ_GO else tmp_path
    with (
        Balancer(range(weir.port, weir.port + 4)) as balancer,
        producing(client, release, f"{HOST}:{weir.port}", topic, tmp_path, programs) as number,
    ):
        counted.wait_for_records()
        assert counted.wrong_nodes == 0
        balancer.lead({first: second, second: first})
        until(lambda: counted.wrong_nodes > 0, lambda: "a client that notices")
        balancer.lead({})
        counted.wait_for_records()
        told = counted.wrong_nodes
        counted.wait_for_records()
        assert counted.wrong_nodes == told
    check_delivery(cluster.bootstrap, topic, *number, once=not release.startswith("0."))
