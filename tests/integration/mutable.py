"""Clusters whose topics tests create and delete by the hundred, and what their brokers know of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.settings import HOST
from tests.mutations.client import ask_once
from tests.mutations.requests import Delete
from tests.raw import Address, ask
from weir.protocol.messages import MetadataRequest, MetadataResponse

RELEASES: Final = ("0.10.2.2", "3.9.1", "4.4.0")
DEFAULT_PARTITIONS: Final = 3
"""`num.partitions` of the clusters with two brokers."""
SMALL: Final = {"segment.index.bytes": "4096"}
"""A topic's configuration: partitions without indexes of 10 MB."""
_METADATA_VERSION: Final = 1
_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.05


def mutable(kafka_cluster: StartCluster, version: str) -> Cluster:
    """One cluster per release for all such tests. 2.8.2 (ZooKeeper) and 3.9.1 (KRaft) have two brokers."""
    if version in {"2.8.2", "3.9.1"}:
        return kafka_cluster(version, brokers=2, settings={"num.partitions": str(DEFAULT_PARTITIONS)})
    return kafka_cluster(version)


def quota(rate: float, client_id: str | None = "<default>") -> str:
    """A quota file with one mutation quota; of the default user if no client-id is given."""
    whose = f'client_id = "{client_id}"' if client_id else 'user = "<default>"'
    return f"[[quota]]\n{whose}\ncontroller_mutation_rate = {rate}\n"


def burst(samples: int) -> tuple[str, ...]:
    """Options of `weir run`: so many seconds' worth at once."""
    return ("--set", f"quota_window_num={samples}")


def listener(weir: Weir, node_id: int) -> Address:
    return (HOST, weir.port + 1 + node_id)


def controller(weir: Weir, cluster: Cluster) -> Address:
    """Weir's address of the broker that takes mutations: with KRaft each does."""
    return listener(weir, cluster.controller())


def partitions_at(address: Address) -> Mapping[str, int]:
    """Every topic that a broker knows, with its partitions; none is created by being asked for."""
    answer = ask(address, MetadataRequest(topics=None), MetadataResponse, _METADATA_VERSION)
    return {topic.name: len(topic.partitions) for topic in answer.topics if topic.name is not None}


def await_partitions(cluster: Cluster, expected: Mapping[str, int]) -> None:
    """Return when every broker knows these topics with these partitions; 0: the topic is not there."""
    deadline = time.monotonic() + _TIMEOUT_S
    for node_id, port in cluster.ports.items():
        while True:
            there = partitions_at((HOST, port))
            found = {name: there.get(name, 0) for name in expected}
            if found == expected:
                break
            if time.monotonic() > deadline:
                pytest.fail(f"broker {node_id} knows {found}, not {expected}, after {_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)


def delete(cluster: Cluster, names: Iterable[str]) -> None:
    version = 0 if cluster.version == "0.10.2.2" else 1
    ask_once((HOST, cluster.ports[cluster.controller()]), "cleaner", Delete(tuple(names), version))
