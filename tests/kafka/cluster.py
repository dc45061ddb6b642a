"""One real Kafka cluster on this machine, from start to clean end."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka import jars, ports, sasl, storage, wire, zookeeper
from tests.kafka.class_archive import ClassArchive, recording
from tests.kafka.java import java_command
from tests.kafka.processes import Processes
from tests.kafka.settings import HOST, Node, Topology, server_properties, zookeeper_properties

_START_S = 120.0
_POLL_S = 0.05
_BRIEF = "-XX:TieredStopAtLevel=1"  # for what ends before optimizing it would pay
_LOG_TAIL_LINES = 30
LOG4J = os.path.join(os.path.dirname(__file__), "log4j.properties")  # noqa: PTH118, PTH120 (a JVM option)


class ClusterError(Exception):
    """A cluster did not start, or did not do what it was told."""


class Cluster:
    """Kafka `version` with `brokers` nodes, at 127.0.0.1 on `port`, `port` + 1, … (None: free ports).

    Up to 2.8 with ZooKeeper, from 3.0 on in KRaft mode. Node ids count from `first_id`. `settings` override
    `server.properties`; `with_sasl` adds a listener as `sasl.py` tells; `with_jmx` opens JMX to this
    machine, without a login. Java starts brokers in half the time by optimizing their code little, unless
    they are `optimized`: for tests that measure them. `classes` is a directory of further classes. With
    `replication_at`, brokers have an inter-broker listener, and tell each other that it is at this port (the
    first broker's), the next one, …: there a proxy must forward connections to `replication_upstream` before
    `start` is called. Use it as a context manager, or call `start` and `stop`. Not thread-safe.
    """

    def __init__(
        self,
        version: str,
        *,
        brokers: int = 1,
        port: int | None = None,
        first_id: int = 0,
        settings: Mapping[str, str] | None = None,
        with_sasl: bool = False,
        heap: str = "384m",
        java: str | None = None,
        with_jmx: bool = False,
        optimized: bool = False,
        replication_at: int | None = None,
        classes: str = "",
        say: Callable[[str], None] = print,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs at least one broker, not {brokers}")
        self.version = version
        self._heap = heap
        self._java = java
        self._jmx_ports: dict[int, int] | None = {} if with_jmx else None
        self._optimized = optimized
        self._say = say
        self._wanted_port = port
        self._brokers = brokers
        self._first_id = first_id
        self._settings = dict(settings or {})
        self._with_sasl = with_sasl
        self._replication_at = replication_at
        self._replication_port = 0 if replication_at is None else ports.free_range(brokers)
        self._zookeeper_port = 0 if replication_at is None else ports.free_range(1)
        self._topology = Topology(version, (), self._zookeeper_port)
        self._classpath: list[Path] = []
        self._classes = [classes] if classes else []
        self._archive: ClassArchive | None = None
        self._recorded: dict[str, Path] | None = None
        self._processes: Processes | None = None

    # The cluster as its users see it.

    @property
    def ports(self) -> dict[int, int]:
        return {node.node_id: node.port for node in self._topology.members}

    @property
    def controller_ports(self) -> dict[int, int]:
        """The port of each KRaft controller by its node id; empty with ZooKeeper."""
        voters = self._topology.voters if self._topology.kraft else ()
        return {node.node_id: node.controller_port for node in voters}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    @property
    def sasl_ports(self) -> dict[int, int]:
        """Each broker's port for SASL by its node id; empty if there is none."""
        return {node.node_id: node.sasl_port for node in self._topology.members if node.sasl_port}

    @property
    def sasl_bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.sasl_ports.values())

    @property
    def replication_upstream(self) -> str:
        """Node ids and real addresses of the inter-broker listeners, as in `controller.quorum.voters`; empty
        if brokers use those of clients. Known before `start`.
        """
        if not self._replication_port:
            return ""
        indices = range(self._brokers)
        return ",".join(f"{self._first_id + i}@{HOST}:{self._replication_port + i}" for i in indices)

    def jmx(self, node_id: int) -> str:
        """Where a broker that was started with JMX tells its metrics, HOST:PORT. Raises KeyError."""
        return f"{HOST}:{(self._jmx_ports or {})[node_id]}"

    @property
    def alive(self) -> set[int]:
        return {node_id for node_id in self.ports if self._children.running(_name(node_id))}

    @property
    def logs(self) -> Path:
        return self._children.logs

    @property
    def directory(self) -> Path:
        """Everything the cluster has on disk; gone after `stop`, except for logs that were kept."""
        return self._children.directory

    @property
    def zookeeper(self) -> str:
        """Where ZooKeeper listens, HOST:PORT; with `replication_at` known before `start`, because the proxy
        starts first. Raises ClusterError if there is none.
        """
        if self._topology.kraft:
            raise ClusterError(f"Kafka {self.version} runs without ZooKeeper")
        return f"{HOST}:{self._topology.zookeeper_port}"

    def pid(self, node_id: int) -> int:
        """Process id of a broker. Raises KeyError."""
        return self._children.pid(_name(node_id))

    def controller(self) -> int:
        """Node id of the active controller, once there is one that lives. Raises ClusterError."""
        return self._named("a controller", self._controller_by)

    def coordinator(self, group: str) -> int:
        """Node id of a group's coordinator, once there is one that lives. Raises ClusterError."""
        return self._named(f"a coordinator of {group}", lambda port: wire.coordinator(HOST, port, group))

    # Start and end.

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(keep_logs=isinstance(error, Exception))  # not for Ctrl-C

    def start(self) -> None:
        """Fetch what is missing, start every process, return when each broker knows all others.

        Raises ClusterError (nothing is left but the logs it names), JarError, JavaMissingError.
        """
        if self._processes is not None:
            raise ClusterError("this cluster was started already")
        self._classpath = jars.classpath(self.version, self._say)
        self._java = self._java or java_command()
        self._archive = ClassArchive(self._java, self._classpath)
        self._topology = self._plan()
        self._processes = Processes(f"weir-kafka-{self.version}-")
        try:
            with self._archive.to_make() as missing:
                self._recorded = {} if missing else None
                self._start_all()
                if self._recorded is not None:
                    self._archive.make(self._recorded.values(), self._say)
                    self._recorded = None
        except BaseException as error:
            self.stop(keep_logs=isinstance(error, Exception))
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill every process and delete the data; its logs too unless they are kept. May be called again."""
        if self._processes is not None:
            self._processes.close(keep_logs=keep_logs)
            if keep_logs:
                self._say(f"logs of Kafka {self.version}: {self._processes.logs}")

    def kill(self, node_id: int) -> None:
        """End a broker at once (SIGKILL); its data stays.

        Of two KRaft brokers only the first is a controller: without it the other cannot do much.
        """
        self._children.kill(_name(node_id))

    def terminate(self, node_id: int, timeout_s: float = 30.0) -> None:
        """End a broker as an operator would (SIGTERM): it hands over its partitions first."""
        self._children.terminate(_name(node_id), timeout_s)

    def restart(self, node_id: int) -> None:
        """End a broker in good order if it runs, start it with its old data, return when it is ready."""
        if node_id in self.alive:
            self.terminate(node_id)
        if not self._topology.kraft:
            self._wait(f"ZooKeeper to forget broker {node_id}", lambda: node_id not in self._registered())
        self._start_broker(node_id)
        self.wait_until_ready()

    def add(self) -> int:
        """Start one more broker on a free port; return its node id when all know it. Raises ClusterError."""
        if self._replication_at is not None:
            raise ClusterError("no proxy forwards to the inter-broker listener of one more broker")
        port = ports.free_range(2)
        node = Node(max(self.ports) + 1, port, 0, port + 1 if self._with_sasl else 0)
        self._topology = replace(self._topology, joined=(*self._topology.joined, node))
        self._write_properties(node)
        if self._topology.kraft:
            self._format_storage(node)
        self._start_broker(node.node_id)
        self.wait_until_ready()
        return node.node_id

    def remove(self, node_id: int) -> None:
        """End a broker that was added, in good order, and return once the others have forgotten it.

        Move its partitions away, or delete their topics, before. Raises ValueError for a founding broker.
        """
        stay = tuple(node for node in self._topology.joined if node.node_id != node_id)
        if len(stay) == len(self._topology.joined):
            raise ValueError(f"broker {node_id} was not added: the cluster cannot do without it")
        self.terminate(node_id)
        self._topology = replace(self._topology, joined=stay)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when every running broker answers and lists just the running ones. Raises ClusterError."""
        for node_id in sorted(self.alive):
            self._wait(f"broker {node_id} to be ready", partial(self._is_ready, node_id))

    def set_scram_credentials(self, bootstrap: str) -> None:
        """Store the credentials of all users. A controller may learn its metadata.version after its brokers
        answer, and refuses credentials until then: wait for it. Raises ClusterError, KafkaException.
        """
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._wait("the controller to take SCRAM credentials", partial(_takes_scram, admin))

    def run(
        self, main_class: str, *arguments: str, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line tools, e.g. `run("kafka.admin.ConfigCommand", "--describe", …)`."""
        command = [*self._jvm("tool", "256m", _BRIEF), main_class, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    def check(self) -> None:
        """Raise ClusterError if a process ended that nobody told to end."""
        for name in ["zookeeper", *map(_name, self.ports)]:
            self._check(name)

    # How it is done.

    @property
    def _children(self) -> Processes:
        if self._processes is None:
            raise ClusterError("this cluster was not started")
        return self._processes

    def _plan(self) -> Topology:
        first_port = ports.free_range(self._brokers) if self._wanted_port is None else self._wanted_port
        taken = [port for port in range(first_port, first_port + self._brokers) if not ports.is_free(port)]
        if taken:
            raise ClusterError(f"port {taken[0]} is in use: choose another, or end what listens there")
        internal = ports.free_range(2 * self._brokers + 1)
        with_sasl = internal + self._brokers + 1
        nodes = tuple(
            Node(
                self._first_id + index,
                first_port + index,
                internal + index,
                with_sasl + index if self._with_sasl else 0,
                *(
                    ()
                    if self._replication_at is None
                    else (self._replication_port + index, self._replication_at + index)
                ),
            )
            for index in range(self._brokers)
        )
        zookeeper_port = self._zookeeper_port or internal + self._brokers
        return Topology(self.version, nodes, zookeeper_port, self._settings)

    def _start_all(self) -> None:
        for node in self._topology.nodes:
            self._write_properties(node)
            if self._topology.kraft:
                self._format_storage(node)
        if not self._topology.kraft:
            self._start_zookeeper()
            if self._with_sasl:
                zookeeper.write(HOST, self._topology.zookeeper_port, sasl.zookeeper_nodes())
        for node_id in self.ports:
            self._start_broker(node_id)
        self.wait_until_ready()
        if self._with_sasl and self._topology.kraft:
            self.set_scram_credentials(self.bootstrap)

    def _properties(self, node_id: int) -> Path:
        return self._children.data / f"server-{node_id}.properties"

    def _log_directory(self, node: Node) -> Path:
        return self._children.data / f"log-{node.node_id}"

    def _write_properties(self, node: Node) -> None:
        text = server_properties(self._topology, node, self._log_directory(node))
        self._properties(node.node_id).write_text(text)

    def _format_storage(self, node: Node) -> None:
        """KRaft wants each node's directory prepared."""
        is_voter = node in self._topology.voters
        storage.format_directory(
            self._log_directory(node), self.version, node.node_id, voter=is_voter, tool=self._run_storage_tool
        )

    def _run_storage_tool(self, properties: Path) -> None:
        arguments = ["format", "-t", storage.CLUSTER_ID, "-c", str(properties)]
        command = [*self._jvm("format", "128m", _BRIEF), "kafka.tools.StorageTool", *arguments]
        self._children.start("format", command)
        status = self._children.wait("format", _START_S)
        if status != 0:
            raise self._failure("format", f"ended with status {status}")

    def _start_zookeeper(self) -> None:
        port, data = self._topology.zookeeper_port, self._children.data
        config = data / "zookeeper.properties"
        config.write_text(zookeeper_properties(port, data / "zookeeper"))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._children.start("zookeeper", [*self._jvm("zookeeper", "128m", _BRIEF), main, str(config)])
        self._wait("ZooKeeper to be ready", lambda: zookeeper.is_ready(HOST, port))

    def _start_broker(self, node_id: int) -> None:
        jaas, options = self._children.data / "jaas.conf", [] if self._optimized else [_BRIEF]
        if self._with_sasl and (text := sasl.jaas_file(self.version)):
            jaas.write_text(text)
            options += [f"-Djava.security.auth.login.config={jaas}"]
        if self._jmx_ports is not None:
            options += _jmx_options(self._jmx_ports.setdefault(node_id, ports.free_range(1)))
        name = _name(node_id)
        command = [*self._jvm(name, self._heap, *options), "kafka.Kafka", str(self._properties(node_id))]
        self._children.start(name, command)

    def _jvm(self, name: str, heap: str, *options: str) -> list[str]:
        return [
            self._java or java_command(),
            f"-Xmx{heap}",
            *self._class_sharing(name),
            *options,
            "-XX:+UseSerialGC",
            "-Djava.awt.headless=true",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j.configuration=file:{LOG4J}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            os.pathsep.join([*map(str, self._classpath), *self._classes]),
        ]

    def _class_sharing(self, name: str) -> list[str]:
        if self._recorded is None:
            return self._archive.options() if self._archive is not None else []
        self._recorded[name] = self._children.data / f"{name}.classes"
        return recording(self._recorded[name])

    def _registered(self) -> set[int]:
        return zookeeper.broker_ids(HOST, self._topology.zookeeper_port)

    def _controller_by(self, port: int) -> int | None:
        return wire.quorum_leader(HOST, port) if self._topology.kraft else wire.metadata(HOST, port)[1]

    def _named(self, what: str, ask: Callable[[int], int | None]) -> int:
        """The running broker that any running broker names when it is asked at its port."""
        found: list[int] = []

        def is_named() -> bool:
            for node_id in sorted(self.alive):
                with suppress(OSError, EOFError, struct.error):
                    named = ask(self.ports[node_id])
                    if named in self.alive:
                        found.append(named)
                        return True
            return False

        self._wait(what, is_named)
        return found[0]

    def _is_ready(self, node_id: int) -> bool:
        try:
            return wire.known_brokers(HOST, self.ports[node_id]) == self.alive
        except (OSError, EOFError, struct.error):
            return False

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Kafka {self.version}: waited {_START_S:.0f} s for {what}; {self._where()}"
                )
            time.sleep(_POLL_S)

    def _check(self, name: str) -> None:
        status = self._children.exit_status(name)
        if status is not None:
            raise self._failure(name, f"ended with status {status}")

    def _failure(self, name: str, what: str) -> ClusterError:
        lines: Iterable[str] = ()
        with suppress(OSError):
            lines = self._children.log(name).read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return ClusterError("\n".join([f"Kafka {self.version}, {name}: {what}; {self._where()}", *lines]))

    def _where(self) -> str:
        return f"its logs are in {self._children.logs}"


def _name(node_id: int) -> str:
    return f"broker-{node_id}"


def _jmx_options(port: int) -> list[str]:
    jmx = "-Dcom.sun.management.jmxremote"
    return [
        *(f"{jmx}.port={port}", f"{jmx}.rmi.port={port}", f"{jmx}.host={HOST}"),
        *(f"{jmx}.authenticate=false", f"{jmx}.ssl=false", f"-Djava.rmi.server.hostname={HOST}"),
    ]


def _takes_scram(admin: AdminClient) -> bool:
    try:
        sasl.upsert_scram(admin)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.UNSUPPORTED_VERSION:
            raise
        return False
    return True
