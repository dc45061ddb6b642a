"""The cast on stage: a cluster, Weir before it, clients in threads, and the clock they are watched by."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from demo.client_specs import CLIENTS, ClientSpec, quota_file
from demo.clients import ClientThread, ConsumerLoop, Pace, ProducerLoop, TopicPartitions, fill
from demo.clusters import BROKERS_USED_MAX, Cluster, mock, real
from demo.errors import DemoError
from demo.measure import ClientCounters, Reading, read
from demo.proxy_process import weir

QUOTAS: Final = "quotas.toml"
REFRESH_S: Final = 0.25
WARM_UP_S: Final = 10.0
"""The shortest window that Kafka divides by (docs/quotas.md). Clients that ask for just their quota so long
fill it evenly. Flat out from cold, they would use ten seconds' worth at once, then wait ten, and so on.
"""
CLOSE_S: Final = 5.0


class ClientSet:
    """An spec on stage: its clients, where they send to or read from, and their counters."""

    def __init__(self, spec: ClientSpec, bootstrap: str, cluster: Cluster) -> None:
        """Make its topic, and write what it is to read. Raises DemoError."""
        topic, leaders = cluster.topic(spec.client_id, BROKERS_USED_MAX if spec.every_broker else 1)
        topic_partitions: TopicPartitions = (topic, tuple(leaders.values()))
        self.spec = spec
        self.brokers = len(leaders)
        self.counters = [ClientCounters() for _ in range(spec.clients)]
        self.paces = [Pace(spec.pace) for _ in self.counters]
        self.threads = [
            ClientThread(partial(_client, spec, bootstrap, topic_partitions, own, pace))
            for own, pace in zip(self.counters, self.paces, strict=True)
        ]
        if spec.role == "consumer":
            fill(cluster.upstream, topic_partitions)

    def warm_up(self) -> None:
        """Have its clients ask for just their quota, together."""
        if self.spec.quota is not None:
            for pace in self.paces:
                pace.rate = self.spec.quota * self.brokers // len(self.paces)

    def speed_up(self) -> None:
        """Have its clients ask for all that they can get, unless they have a pace of their own."""
        for pace in self.paces:
            pace.rate = self.spec.pace

    def read(self) -> Reading:
        """Read its counters. Raises DemoError if a client has failed."""
        for thread in self.threads:
            if thread.failure:
                raise DemoError(thread.failure)
        return read(self.counters, time.monotonic())


def _client(
    spec: ClientSpec, bootstrap: str, topic_partitions: TopicPartitions, counters: ClientCounters, pace: Pace
) -> ProducerLoop | ConsumerLoop:
    if spec.role == "consumer":
        return ConsumerLoop(bootstrap, spec.client_id, topic_partitions, counters, pace)
    return ProducerLoop(bootstrap, spec.client_id, topic_partitions, counters, pace)


class Environment(NamedTuple):
    """Set, but nobody plays yet."""

    cluster: str
    """In words."""
    upstream: str
    client_sets: list[ClientSet]


@contextmanager
def environment(
    upstream: str | None, folder: Path, further: Mapping[str, object] | None = None
) -> Iterator[Environment]:
    """Run Weir with the cast's quotas, and `further` settings, until the block ends; before a mock cluster if
    `upstream` is None. `folder` gets the quota file, and logs. Raises DemoError.
    """
    with mock(folder) if upstream is None else real(upstream) as cluster:
        quotas = folder / QUOTAS
        quotas.write_text(quota_file(CLIENTS), "utf-8")
        with weir(cluster.upstream, cluster.node_ids, quotas, further) as bootstrap:
            client_sets = [ClientSet(spec, bootstrap, cluster) for spec in CLIENTS]
            yield Environment(_described(cluster, upstream), cluster.upstream, client_sets)


def _described(cluster: Cluster, upstream: str | None) -> str:
    count = len(cluster.node_ids)
    brokers = f"{count} broker{'s' if count > 1 else ''}"
    return f"A mock cluster of {brokers}" if upstream is None else f"The cluster at {upstream} ({brokers})"


@contextmanager
def running(client_sets: Sequence[ClientSet]) -> Iterator[None]:
    """Run every client until the block ends."""
    threads = [thread for client_set in client_sets for thread in client_set.threads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def ticks(seconds: float) -> Iterator[float]:
    """Give the seconds that have passed, again and again, at last when all have."""
    began_s = time.monotonic()
    elapsed_s = 0.0
    while elapsed_s < seconds:
        time.sleep(min(REFRESH_S, seconds - elapsed_s))
        elapsed_s = time.monotonic() - began_s
        yield min(elapsed_s, seconds)
