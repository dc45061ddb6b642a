"""Configuration files, and small parsers: no broker."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.kafka import java, sasl, zookeeper
from tests.kafka.cluster import Cluster, ClusterError
from tests.kafka.settings import Node, Topology, render, server_properties, zookeeper_properties


def nodes(count: int, first_id: int = 0) -> tuple[Node, ...]:
    return tuple(Node(first_id + index, 9092 + index, 19092 + index) for index in range(count))


def properties(
    version: str, count: int, index: int = 0, settings: dict[str, str] | None = None
) -> dict[str, str]:
    topology = Topology(version, nodes(count), 2181, settings or {})
    text = server_properties(topology, topology.nodes[index], Path("/data/log"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_old_versions_are_told_of_zookeeper() -> None:
    found = properties("0.10.2.2", 2, 1)
    assert found["broker.id"] == "1"
    assert found["zookeeper.connect"] == "127.0.0.1:2181"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert "process.roles" not in found


def test_new_versions_are_told_of_their_controllers() -> None:
    found = properties("3.9.1", 3, 2)
    assert found["node.id"] == "2"
    assert found["process.roles"] == "broker,controller"
    assert found["controller.quorum.voters"] == "0@127.0.0.1:19092,1@127.0.0.1:19093,2@127.0.0.1:19094"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9094,CONTROLLER://127.0.0.1:19094"
    assert "zookeeper.connect" not in found


@pytest.mark.parametrize(("brokers", "voters"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5)])
def test_the_number_of_controllers_is_odd(brokers: int, voters: int) -> None:
    assert len(Topology("3.9.1", nodes(brokers), 2181).voters) == voters


def test_a_broker_that_is_no_controller_has_no_such_listener() -> None:
    found = properties("4.2.0", 2, 1)
    assert found["process.roles"] == "broker"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9093"


@pytest.mark.parametrize(("brokers", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_topics_have_as_many_replicas_as_there_can_be(brokers: int, replicas: str) -> None:
    found = properties("2.8.2", brokers)
    assert found["default.replication.factor"] == replicas
    assert found["offsets.topic.replication.factor"] == replicas


def sasl_properties(version: str) -> dict[str, str]:
    node = Node(0, 9092, 19092, 9192)
    text = server_properties(Topology(version, (node,), 2181), node, Path("/data/log"))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_sasl_listener_stands_beside_the_plain_one() -> None:
    found = sasl_properties("3.9.1")
    assert found["listeners"] == (
        "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9192,CONTROLLER://127.0.0.1:19092"
    )
    assert found["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    assert 'user_alice="' in found["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert sasl.jaas_file("3.9.1") is None


def replication_properties(version: str) -> dict[str, str]:
    node = Node(0, 9092, 19092, 0, 9093, 29093)
    text = server_properties(Topology(version, (node,), 2181), node, Path("/data/log"))
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_an_inter_broker_listener_is_advertised_at_another_port(version: str) -> None:
    found = replication_properties(version)
    kraft = version == "3.9.1"
    controller = ",CONTROLLER://127.0.0.1:19092" if kraft else ""
    listeners = f"PLAINTEXT://127.0.0.1:9092{controller},REPLICATION://127.0.0.1:9093"
    assert found["listeners"] == listeners
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092,REPLICATION://127.0.0.1:29093"
    assert found["inter.broker.listener.name"] == "REPLICATION"
    protocols = dict(pair.split(":") for pair in found["listener.security.protocol.map"].split(","))
    assert protocols["REPLICATION"] == protocols["PLAINTEXT"] == "PLAINTEXT"
    assert protocols["SASL_PLAINTEXT"] == "SASL_PLAINTEXT"
    assert ("CONTROLLER" in protocols) is kraft


def test_the_addresses_of_inter_broker_listeners_are_known_before_the_start() -> None:
    assert Cluster("3.9.1", brokers=2).replication_upstream == ""
    upstream = Cluster("3.9.1", brokers=2, first_id=7, replication_at=29093).replication_upstream
    first, second = (part.partition("@")[::2] for part in upstream.split(","))
    (host, port), (_host, next_port) = first[1].split(":"), second[1].split(":")
    assert (first[0], second[0], host) == ("7", "8", "127.0.0.1")
    assert int(next_port) == int(port) + 1


def test_0_10_has_its_logins_in_a_file_of_their_own() -> None:
    found = sasl_properties("0.10.2.2")
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9192"
    assert found["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert not [key for key in found if "jaas" in key]
    text = sasl.jaas_file("0.10.2.2")
    assert text is not None
    assert [text.count(f".{name}LoginModule required") for name in ("Plain", "Scram")] == [1, 1]


def test_zookeeper_is_told_a_servers_half_of_a_password() -> None:
    """The example of RFC 7677 (SCRAM-SHA-256), whose client proves that it knows `pencil`."""
    salt, iterations = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    nodes = sasl.zookeeper_nodes([sasl.User("a b,c", "pencil")], salt)
    (path,) = nodes
    assert path == "/config/users/a%20b%2Cc"
    stored = json.loads(nodes[path])["config"]["SCRAM-SHA-256"]
    assert stored == (
        f"salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        f"server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations={iterations}"
    )


def test_settings_have_the_last_word() -> None:
    assert properties("3.9.1", 1, settings={"message.max.bytes": "9"})["message.max.bytes"] == "9"


def test_backslashes_and_line_ends_are_escaped() -> None:
    assert render({"a": "b\\c\nd"}) == "a=b\\\\c\\nd\n"


def test_zookeeper_listens_on_the_loopback_only() -> None:
    assert "clientPortAddress=127.0.0.1\n" in zookeeper_properties(2181, Path("/data"))


def test_registered_brokers_are_read_from_zookeepers_dump() -> None:
    dump = "Sessions with Ephemerals (2):\n0x1:\n\t/controller\n\t/brokers/ids/0\n0x2:\n\t/brokers/ids/1001\n"
    assert zookeeper.parse_broker_ids(dump) == {0, 1001}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_381"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_javas_version_is_understood(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def test_a_java_that_is_not_there_has_no_version() -> None:
    assert java.java_version("/no/such/java") is None


def test_a_cluster_has_at_least_one_broker() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        Cluster("3.9.1", brokers=0)


def test_a_cluster_that_was_not_started_says_so() -> None:
    with pytest.raises(ClusterError, match="was not started"):
        Cluster("3.9.1").kill(0)
