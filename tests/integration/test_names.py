"""One port of Weir's for two brokers, told apart by the names that real clients call them by (TLS's SNI)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import tests.clients
from tests.clients import ClientError, KafkaPython, create_topic
from tests.clients.exchange import some_messages
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.mutable import mutable
from tests.integration.with_sasl import CONSUMED, GENEROUS_TO_ALL, PRODUCED
from tests.integration.with_tls import VERSION, java_trusting, python_trusting
from tests.java.records import Exchange, JavaRecords
from tests.kafka.fixtures import StartCluster
from tests.proxy.certificates import HOST, write_ca, write_pair

pytestmark = [pytest.mark.broker]

NEWEST: Final = "4.4.0"
"""Release of Java's clients: they tell the node that they expect behind a name (KIP-1242)."""
DOMAIN: Final = "weir.test"
STRANGER: Final = f"broker-7.{DOMAIN}"
MESSAGES: Final = {0: some_messages(20, 500, seed=0), 1: some_messages(60, 500, seed=1)}
"""For the broker with this node id."""
BYTES: Final = {node_id: sum(map(len, messages)) for node_id, messages in MESSAGES.items()}
HEADS: Final = 1.5
"""Requests and records have heads as well, of less than half of what they carry here."""


class KafkaPythonByName(KafkaPython):
    worker = Path(tests.clients.__file__).with_name("kafka_python_names_worker.py")

    def __init__(self, hosts: Path) -> None:
        super().__init__()
        self._hosts = hosts

    @property
    def command(self) -> list[str]:
        """See WorkerClient."""
        return [*super().command, str(self._hosts)]


class Door:
    """Weir, its one port, and what clients need to find it and to trust it."""

    def __init__(self, start_weir: StartWeir, upstream: str, directory: Path) -> None:
        self.admin = Admin()
        self.ca = str(write_ca(directory))
        self.hosts = directory / "hosts"
        names = [f"bootstrap.{DOMAIN}", *(f"broker-{node_id}.{DOMAIN}" for node_id in MESSAGES), STRANGER]
        self.hosts.write_text("".join(f"{HOST} {name}\n" for name in names))
        cert, key = write_pair(directory, f"*.{DOMAIN}")
        options = (
            *("--set", f"tls_cert={cert},{key}"),
            *("--set", f"sni_domain={DOMAIN}", "--broker-ports", ""),
        )
        self.weir = start_weir(upstream, GENEROUS_TO_ALL, options=(*options, *self.admin.options))
        self.admin.wait_for(200)

    def at(self, name: str = f"bootstrap.{DOMAIN}") -> str:
        return f"{name}:{self.weir.port}"

    def charged(self) -> dict[tuple[str, str, str], float]:
        rows = self.admin.settled().rows("weir_entity_bytes_total")
        found = [(dict(labels), value) for labels, value in rows.items()]
        return {(of["client_id"], of["quota"], of["broker"]): value for of, value in found}


def test_clients_reach_each_broker_by_sni_and_each_broker_charges_separately(
    kafka_cluster: StartCluster,
    start_weir: StartWeir,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = mutable(kafka_cluster, VERSION)
    door = Door(start_weir, cluster.bootstrap, tmp_path)
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djdk.net.hosts.file={door.hosts}")
    topics = {
        client: {node: f"{topic}-{client}-{node}" for node in MESSAGES} for client in ("java", "python")
    }
    for named in topics.values():
        for node_id, name in named.items():
            create_topic(cluster.bootstrap, name, on=node_id)

    def java() -> list[list[bytes]]:
        config = java_trusting(door.ca) | {"client.id": "java"}
        exchanges = [Exchange(topics["java"][node], MESSAGES[node], config) for node in MESSAGES]
        return JavaRecords(NEWEST, door.at()).run(*exchanges)

    def python(node: int) -> list[bytes]:
        client, name = KafkaPythonByName(door.hosts), topics["python"][node]
        config, messages = python_trusting(door.ca), MESSAGES[node]
        client.produce(door.at(), name, messages, client_id="python", config=config)
        return client.consume(door.at(), name, len(messages), client_id="python", config=config).values

    with ThreadPoolExecutor() as pool:
        by_java = pool.submit(java)
        assert list(pool.map(python, MESSAGES)) == list(MESSAGES.values())
        assert by_java.result() == list(MESSAGES.values())
    metrics = door.admin.settled()
    assert metrics.value("weir_requests_total", api="ApiVersions", version="5") > 0
    assert metrics["weir_wrong_nodes_total"] == 0
    charged = door.charged()
    for client in topics:
        for node_id, least in BYTES.items():
            for quota in (PRODUCED, CONSUMED):
                assert least < charged[client, quota, str(node_id)] < HEADS * least


def test_a_tls_connection_with_an_unknown_server_name_is_closed(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    door = Door(start_weir, mutable(kafka_cluster, VERSION).bootstrap, tmp_path)
    config = python_trusting(door.ca) | {"bootstrap_timeout_ms": 500}
    with pytest.raises(ClientError, match="Unable to bootstrap"):
        KafkaPythonByName(door.hosts).produce(door.at(STRANGER), topic, MESSAGES[0], config=config)
    assert "no broker 7 is known" in door.weir.log
    closed = door.admin.settled().rows("weir_sessions_closed_total")
    assert closed[frozenset({("reason", "server_name_unknown"), ("broker", "unknown")})] >= 1
