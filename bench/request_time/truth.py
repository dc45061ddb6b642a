"""Read the request time of each client as the broker measures it, through JMX.

A broker measures this for every client-id to which a request quota applies, as a rate over the quota's
window. With a window of an hour, the rate times the measured time is the client's whole request time.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import jars
from tests.kafka import Cluster
from tests.kafka.jars import version_tuple
from tests.kafka.java import java_command

WINDOW_S: Final = 3600
SETTINGS: Final = {"quota.window.num": "2", "quota.window.size.seconds": str(WINDOW_S)}
"""Broker settings that make the window of quotas long enough: an hour."""
SOURCE: Final = Path(jars.__file__).parent.parent / "java" / "RequestTimes.java"
QUOTA: Final = f"request_percentage={10**9}"
"""Quota of every client-id, too high to throttle: a broker measures only clients that have one."""
_US_PER_PERCENT: Final = 10_000.0


class TruthError(Exception):
    """Raised if the broker's request times cannot be read."""


class Truth:
    """Reads the broker's request time by client-id, with a Java subprocess."""

    def __init__(self, java: subprocess.Popen[str]) -> None:
        self._java = java

    def us(self, client_id: str, began_s: float) -> float:
        """Return the request time (µs of one thread) of a client-id so far. `began_s` is the time (s,
        monotonic) of its first request, at most an hour ago. Raises TruthError.

        Kafka's `Rate` divides by the elapsed time plus one window: it counts the older of its two windows as
        full.
        """
        elapsed_s = time.monotonic() - began_s
        return self._percents().get(client_id, 0.0) * _US_PER_PERCENT * (WINDOW_S + elapsed_s)

    def _percents(self) -> dict[str, float]:
        """Return the broker's rate (percent of one thread) of every client-id."""
        assert self._java.stdin is not None
        assert self._java.stdout is not None
        rates = {}
        try:
            print(file=self._java.stdin, flush=True)
            while line := self._java.stdout.readline().strip():
                client_id, _, rate = line.rpartition("=")
                rates[client_id] = float(rate)
        except (BrokenPipeError, ValueError) as error:
            raise TruthError(f"JMX of the broker cannot be read: {error}") from error
        return rates


@contextmanager
def reading(cluster: Cluster) -> Iterator[Truth]:
    """Give every client-id of a cluster of one broker a quota, and read request times until the block ends.
    Raises TruthError, JarError.
    """
    where = ("--bootstrap-server", cluster.bootstrap)
    if version_tuple(cluster.version) < (2, 6):
        where = ("--zookeeper", cluster.zookeeper)
    everybody = ("--entity-type", "clients", "--entity-default")
    done = cluster.run("kafka.admin.ConfigCommand", *where, "--alter", *everybody, "--add-config", QUOTA)
    if done.returncode:
        raise TruthError(f"no quota could be set: {done.stderr.strip() or done.stdout.strip()}")
    classes = jars.compiled(SOURCE, cluster.directory / "classes")
    command = [java_command(), "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(classes), SOURCE.stem]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, cluster.jmx(0)], stdin=pipe, stdout=pipe, text=True) as java:
        try:
            yield Truth(java)
        finally:
            java.kill()
