"""Kroxylicious, a Kafka proxy for the JVM, without filters: it only rewrites broker addresses, as Weir does
too.

Maven Central has Kroxylicious' runtime but not its application. `bench/java/KroxyliciousLauncher.java` starts
the runtime.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from bench import certificate, jars
from bench.entry import PLAIN, Entry
from bench.targets.target import Running, Surroundings, Target, start_process
from tests.kafka.java import java_command, java_version
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST

HEAP: Final = "512m"
WARM_UP_S: Final = 15.0
"""Warm-up (s) of each load. Measured: the first load took 15 s until its rate was steady, later loads less.
"""
NODE_IDS: Final = 3
"""Number of ports that Kroxylicious opens for brokers: by default, one for each of the node ids 0 to 2."""
SOURCE: Final = Path(jars.__file__).parent.parent / "java" / "KroxyliciousLauncher.java"
_CONFIG: Final = """\
virtualClusters:
  - name: bench
    targetCluster:
      bootstrapServers: {host}:{broker_port}
    gateways:
      - name: bench
        portIdentifiesNode:
          bootstrapAddress: {host}:{port}
"""
_TLS: Final = """\
        tls:
          key:
            privateKeyFile: {key}
            certificateFile: {chain}
"""


def _start(surroundings: Surroundings) -> Running:
    return _start_with(surroundings, "", PLAIN)


def _start_tls(surroundings: Surroundings) -> Running:
    made = certificate.make(surroundings.directory / "kroxylicious-tls")
    return _start_with(surroundings, _TLS.format(key=made.key, chain=made.chain), Entry(ca=str(made.ca)))


def _start_with(surroundings: Surroundings, tls: str, entry: Entry) -> Running:
    port = free_range(1 + NODE_IDS)
    config = surroundings.directory / "kroxylicious.yaml"
    config.write_text(_CONFIG.format(host=HOST, port=port, broker_port=surroundings.broker_port) + tls)
    classes = surroundings.directory / "kroxylicious"
    command = [
        *(java_command(), f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", jars.compiled(SOURCE, classes, "kroxylicious"), SOURCE.stem, str(config)),
    ]
    return start_process(surroundings, "kroxylicious", command, port, entry)


def version() -> str:
    """Return the versions of Kroxylicious and of Java."""
    return f"0.12.0, Java {java_version(java_command())}"


KROXYLICIOUS: Final = Target(
    "kroxylicious", "Kroxylicious (JVM)", _start, warm_up_s=WARM_UP_S, version=version
)
KROXYLICIOUS_TLS: Final = replace(KROXYLICIOUS, start=_start_tls)
