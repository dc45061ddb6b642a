"""Configuration files of brokers and of ZooKeeper, sized for tests: little memory and disk, no waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka import sasl
from tests.kafka.jars import version_tuple

HOST = "127.0.0.1"
REPLICATION = "REPLICATION"
"""Name of the inter-broker listener that a proxy stands in front of."""
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """One broker: its node id, its client port, under KRaft its controller's port, that of its SASL
    listener, and those of its inter-broker listener: its own, and the one it advertises (0: it has none).
    """

    node_id: int
    port: int
    controller_port: int
    sasl_port: int = 0
    replication_port: int = 0
    advertised_replication_port: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """What the configuration of every broker depends on. `nodes` founded the cluster; `settings` have the
    last word over everything.
    """

    version: str
    nodes: tuple[Node, ...]
    zookeeper_port: int
    settings: Mapping[str, str] = field(default_factory=dict)
    joined: tuple[Node, ...] = ()
    """Those that came later: they vote for no controller, and the number of replicas does not follow them."""

    @property
    def kraft(self) -> bool:
        """Whether the brokers are their own controllers (3.0 and newer) or need ZooKeeper."""
        return version_tuple(self.version) >= (3, 0)

    @property
    def members(self) -> tuple[Node, ...]:
        return self.nodes + self.joined

    @property
    def voters(self) -> tuple[Node, ...]:
        """The KRaft controllers: an odd number of brokers, so that of three or more any one may be killed."""
        return self.nodes[: len(self.nodes) - 1 + len(self.nodes) % 2]


def server_properties(topology: Topology, node: Node, log_dir: Path) -> str:
    """The text of one broker's `server.properties`."""
    properties = _small(len(topology.nodes)) | {"log.dirs": str(log_dir)}
    properties |= _kraft(topology, node) if topology.kraft else _zookeeper(topology, node)
    if node.sasl_port:
        properties |= sasl.server_settings(topology.version, kraft=topology.kraft)
    if node.replication_port:
        properties |= _replication(properties, node)
    return render(properties | dict(topology.settings))


def _small(brokers: int) -> dict[str, str]:
    """Bounded disk, small internal topics, room for 1 MB messages. Old brokers ignore what they lack."""
    replicas = min(3, brokers)
    properties = {
        "message.max.bytes": 2 * _MB,
        "replica.fetch.max.bytes": 2 * _MB,
        "log.segment.bytes": 16 * _MB,
        "log.retention.bytes": 256 * _MB,
        "log.retention.check.interval.ms": 10_000,
        "log.segment.delete.delay.ms": 1_000,
        "log.cleaner.dedupe.buffer.size": 4 * _MB,
        "auto.create.topics.enable": "true",
        "delete.topic.enable": "true",
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 1,
    }
    return {key: str(value) for key, value in properties.items()}


def _listeners(node: Node) -> list[str]:
    """Those of clients; brokers reach each other through the plain one."""
    with_sasl = [f"SASL_PLAINTEXT://{HOST}:{node.sasl_port}"] if node.sasl_port else []
    return [f"PLAINTEXT://{HOST}:{node.port}", *with_sasl]


def _replication(properties: Mapping[str, str], node: Node) -> dict[str, str]:
    """The settings of a broker with an inter-broker listener that other brokers reach at another port."""
    security = properties.get("listener.security.protocol.map", _security())
    listener = f"{REPLICATION}://{HOST}:"
    advertised = [*_listeners(node), f"{listener}{node.advertised_replication_port}"]
    return {
        "listeners": f"{properties['listeners']},{listener}{node.replication_port}",
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": f"{security},{REPLICATION}:PLAINTEXT",
        "inter.broker.listener.name": REPLICATION,
    }


def _security() -> str:
    """The security protocol of each of Kafka's usual listener names."""
    return ",".join(f"{name}:{name}" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))


def _kraft(topology: Topology, node: Node) -> dict[str, str]:
    """Combined mode: the first odd number of nodes are controllers too."""
    is_voter = node in topology.voters
    listeners = _listeners(node)
    listeners += [f"CONTROLLER://{HOST}:{node.controller_port}"] if is_voter else []
    return {
        "process.roles": "broker,controller" if is_voter else "broker",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "4000",  # a broker that was killed cannot register again before
        "metadata.max.idle.interval.ms": "5000",  # half a second by default: two log entries per idle second
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{voter.node_id}@{HOST}:{voter.controller_port}" for voter in topology.voters
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{_security()}",
    }


def _zookeeper(topology: Topology, node: Node) -> dict[str, str]:
    return {
        "broker.id": str(node.node_id),
        "broker.id.generation.enable": "false",  # otherwise ids above 1000 are refused
        "listeners": ",".join(_listeners(node)),
        "zookeeper.connect": f"{HOST}:{topology.zookeeper_port}",
        "zookeeper.session.timeout.ms": "4000",
        "zookeeper.connection.timeout.ms": "30000",
    }


def zookeeper_properties(port: int, data: Path) -> str:
    return render(
        {
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "dataDir": str(data),
            "tickTime": "1000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,dump",
        }
    )


def render(properties: Mapping[str, str]) -> str:
    """A Java properties file. Backslashes and line ends in values are escaped, as Java reads them back."""
    escaped = {key: value.replace("\\", "\\\\").replace("\n", "\\n") for key, value in properties.items()}
    return "".join(f"{key}={value}\n" for key, value in escaped.items())
