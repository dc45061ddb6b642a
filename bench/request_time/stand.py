"""Start a broker whose request time can be measured, with the workloads' topics and bounded disk usage."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from bench.entry import receive_frame
from bench.request_time import topics
from bench.request_time.calls import BrokerVersions, Call
from bench.request_time.truth import SETTINGS as TRUTH_SETTINGS
from bench.request_time.truth import Truth
from tests.kafka import Cluster
from tests.kafka.jars import version_tuple
from tests.kafka.settings import HOST
from weir.protocol import Message

VERSIONS: Final = ("1.1.1", "2.8.2", "3.9.1", "4.2.0")
HEAP: Final = "1g"
QUOTA_PERCENT: Final = 10**9
"""Request quota (percent of a thread) of every client-id, too high to throttle: a broker measures a
client-id's request time only while a quota applies to it.
"""
_MB: Final = 1 << 20
_SETTINGS: Final = {
    **TRUTH_SETTINGS,
    "log.retention.ms": "-1",
    "log.retention.bytes": str(64 * _MB),
    "log.segment.bytes": str(16 * _MB),
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.index.size.max.bytes": str(128 * 1024),
    "max.incremental.fetch.session.cache.slots": "1000",
}
_SETTINGS_SINCE: Final = {(4, 0): {"group.coordinator.rebalance.protocols": "classic,consumer,share"}}
ANSWER_S: Final = 30.0
_SEEN_S: Final = 30.0
_POLL_S: Final = 0.1

M = TypeVar("M", bound=Message)


class StandError(Exception):
    """Raised if a broker's request time cannot be measured."""


@dataclass(frozen=True, slots=True)
class Stand:
    """A running broker with its topics, ready for measurements."""

    version: str
    address: tuple[str, int]
    broker_versions: BrokerVersions
    truth: Truth
    data: topics.Data


def ask(address: tuple[str, int], call: Call, kind: type[M]) -> M:
    """Send one request to the broker at `address` on a new connection; return the response. Raises OSError,
    ProtocolError.
    """
    with socket.create_connection(address, ANSWER_S) as connection:
        connection.sendall(call.frame)
        answer = call.response(receive_frame(connection))
    assert isinstance(answer, kind)
    return answer


def is_since(version: str, *release: int) -> bool:
    """Return True if a Kafka version is this release or a later one."""
    return version_tuple(version) >= release


@contextmanager
def standing(version: str) -> Iterator[Stand]:
    """Start a broker, and yield it with its topics; stop it and delete its files after the block. Raises
    StandError, TopicsError, TruthError, OSError, and ClusterError, JarError or JavaMissingError if the broker
    cannot run.
    """
    settings = dict(_SETTINGS)
    for release, more in _SETTINGS_SINCE.items():
        if version_tuple(version) >= release:
            settings |= more
    cluster = Cluster(
        version, settings=settings, with_jmx=True, heap=HEAP, optimized=True, say=lambda _text: None
    )
    with ExitStack() as stack:
        stack.enter_context(cluster)
        (port,) = cluster.ports.values()
        address = (HOST, port)
        classes = cluster.directory / "classes"
        classes.mkdir()
        truth = stack.enter_context(Truth(cluster.jmx(0), classes))
        _limit_everybody(cluster)
        broker_versions = BrokerVersions.of(HOST, port)
        _await_account(address, broker_versions, truth)
        yield Stand(
            version,
            address,
            broker_versions,
            truth,
            topics.prepare(address, broker_versions, version),
        )


def _limit_everybody(cluster: Cluster) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    if not is_since(cluster.version, 2, 6):
        where = ("--zookeeper", cluster.zookeeper)
    done = cluster.run(
        "kafka.admin.ConfigCommand",
        *(*where, "--alter", "--entity-type", "clients", "--entity-default"),
        *("--add-config", f"request_percentage={QUOTA_PERCENT}"),
    )
    if done.returncode:
        raise StandError(f"no quota could be set: {done.stderr.strip() or done.stdout.strip()}")


def _await_account(address: tuple[str, int], broker_versions: BrokerVersions, truth: Truth) -> None:
    """Wait until the broker measures request time: a new quota applies after a moment, and only then does the
    broker measure. Raises StandError after some time.
    """
    from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

    body = ApiVersionsRequest(client_software_name="weir", client_software_version="1")
    call = broker_versions.call("known", body)
    truth.begin(call.client_id)
    deadline_s = time.monotonic() + _SEEN_S
    while not truth.read()[call.client_id] > 0.0:
        if time.monotonic() > deadline_s:
            raise StandError("the broker keeps no account of request time")
        ask(address, call, ApiVersionsResponse)
        time.sleep(_POLL_S)
