"""Run the demonstration's parts: a cluster, Weir in front of it, and clients in threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from weir.demo.client_specs import CLIENTS, ClientSpec, quota_file
from weir.demo.clients import ClientThread, ConsumerLoop, ProducerLoop, SteadyPace, TopicPartitions, fill
from weir.demo.clusters import BROKERS_USED_MAX, Cluster, mock, real
from weir.demo.errors import DemoError
from weir.demo.measure import ClientCounters, ClientReading, read
from weir.demo.proxy_process import weir
from weir.proxy import atomic_write
from weir.quotas.table.options import Pacing

QUOTAS: Final = "quotas.toml"
REFRESH_S: Final = 0.25
WARM_UP_S: Final = 10.0
"""Duration (s) of the warm-up: the shortest window of Kafka's rates (docs/reference/quotas.md). During the
warm-up, clients at exactly their quota fill the window evenly. Without it, clients that ask for more
would use ten seconds' worth at once, then wait ten seconds, and so on.
"""
CLOSE_S: Final = 5.0


class ClientSet:
    """The clients of one `ClientSpec`: their threads, counters and paces, and the number of brokers that they
    use.
    """

    def __init__(self, spec: ClientSpec, bootstrap: str, cluster: Cluster) -> None:
        """Create the clients' topic; for consumers, write the messages to read. The threads start later.
        Raises DemoError.
        """
        topic, leaders = cluster.topic(spec.client_id, BROKERS_USED_MAX if spec.every_broker else 1)
        topic_partitions: TopicPartitions = (topic, tuple(leaders.values()))
        self.spec = spec
        self.brokers = len(leaders)
        self.counters = [ClientCounters() for _ in range(spec.clients)]
        self.paces = [SteadyPace(spec.demand // spec.clients) for _ in self.counters]
        self.threads = [
            ClientThread(partial(_client, spec, bootstrap, topic_partitions, own, pace))
            for own, pace in zip(self.counters, self.paces, strict=True)
        ]
        if spec.role == "consumer":
            fill(cluster.upstream, topic_partitions)

    def warm_up(self) -> None:
        """Limit the clients' joint rate to their quota at all brokers; do nothing if they have no quota, or
        one with smooth pacing, which needs no warm-up.
        """
        if self.spec.quota is not None and self.spec.pacing is Pacing.KAFKA:
            for pace in self.paces:
                pace.rate = self.spec.quota * self.brokers // len(self.paces)

    def speed_up(self) -> None:
        """End the limit of the warm-up: the clients ask for their spec's demand again."""
        for pace in self.paces:
            pace.rate = self.spec.demand // self.spec.clients

    def read(self) -> ClientReading:
        """Return the sums of the clients' counters. Raises DemoError if a client has failed."""
        for thread in self.threads:
            if thread.failure:
                raise DemoError(thread.failure)
        return read(self.counters, time.monotonic())


def _client(
    spec: ClientSpec,
    bootstrap: str,
    topic_partitions: TopicPartitions,
    counters: ClientCounters,
    pace: SteadyPace,
) -> ProducerLoop | ConsumerLoop:
    if spec.role == "consumer":
        return ConsumerLoop(bootstrap, spec.client_id, topic_partitions, counters, pace)
    return ProducerLoop(bootstrap, spec.client_id, topic_partitions, counters, pace)


class Environment(NamedTuple):
    """A Kafka cluster and Weir, both running, and clients that have not started."""

    cluster: str
    """Description of the cluster, such as "A mock cluster of 3 brokers"."""
    upstream: str
    client_sets: list[ClientSet]
    quotas: Path
    """Quota file, which Weir reads again once it has changed."""

    def enforce_quotas(self) -> None:
        """Write the clients' quotas into the quota file; Weir finds them there within two seconds."""
        atomic_write.replace(self.quotas, quota_file(CLIENTS).encode())


@contextmanager
def environment(
    upstream: str | None,
    folder: Path,
    further: Mapping[str, object] | None = None,
    *,
    enforced: bool,
) -> Iterator[Environment]:
    """Yield a running cluster and Weir, and clients that have not started; stop all of them after the block.
    Raises DemoError if one cannot start.

    Without `upstream`, the cluster is a mock cluster. `folder` gets the quota file and the logs; `further`
    are more settings of Weir, as in the configuration file. The quota file is empty unless `enforced`.
    """
    with mock(folder) if upstream is None else real(upstream) as cluster:
        quotas = folder / QUOTAS
        quotas.write_text(quota_file(CLIENTS) if enforced else "", "utf-8")
        with weir(cluster.upstream, cluster.node_ids, quotas, further) as bootstrap:
            client_sets = [ClientSet(spec, bootstrap, cluster) for spec in CLIENTS]
            yield Environment(_described(cluster, upstream), cluster.upstream, client_sets, quotas)


def _described(cluster: Cluster, upstream: str | None) -> str:
    count = len(cluster.node_ids)
    brokers = f"{count} broker{'s' if count > 1 else ''}"
    return f"A mock cluster of {brokers}" if upstream is None else f"The cluster at {upstream} ({brokers})"


@contextmanager
def running(client_sets: Sequence[ClientSet]) -> Iterator[None]:
    """Run all clients until the block ends."""
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
    """Yield the time (s) that has passed, every `REFRESH_S` seconds. The last value is `seconds`."""
    began_s = time.monotonic()
    elapsed_s = 0.0
    while elapsed_s < seconds:
        time.sleep(min(REFRESH_S, seconds - elapsed_s))
        elapsed_s = time.monotonic() - began_s
        yield min(elapsed_s, seconds)
