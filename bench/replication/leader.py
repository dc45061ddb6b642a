"""Prepare the broker as the leader of topics that a follower fetches.

A leader answers replica fetches of the replicas in a partition's assignment only. So the benchmark registers
a broker that does not exist at the controller, and assigns a replica of each partition to it. That broker
sends no heartbeats: it is fenced from the beginning, and never in sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID, uuid4

from bench import broker, frames
from bench.broker import FOR_EVER
from bench.replication import fetches
from bench.replication.rows import ROWS, FollowerRow
from weir.calibration import bodies
from weir.protocol.messages import (
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    MetadataResponse,
)

LEADER: Final = 0
"""Node id of the broker."""
REGISTRATION_VERSION: Final = 2
FEATURES: Final = {"metadata.version": (1, 100)}
"""Range of levels that the follower supports, by feature; it contains the level of every cluster."""


def prepare(port: int, controller_port: int, rows: Sequence[FollowerRow] = ROWS) -> dict[str, UUID]:
    """Register the follower, create the topics of these loads with their records, and return the topics' ids
    by name. Raises BrokerError, OSError.
    """
    broker.ask_until_ready(controller_port, _registration(_cluster_id(port)))
    return {row.topic: _prepared(port, row) for row in rows}


def _cluster_id(port: int) -> str:
    answer = broker.ask(port, frames.request(frames.METADATA_VERSION, bodies.metadata([])))
    assert isinstance(answer, MetadataResponse)
    return answer.cluster_id or ""


def _registration(cluster_id: str) -> frames.Request:
    listener = BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=1)
    features = [
        BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, (low, high) in FEATURES.items()
    ]
    body = BrokerRegistrationRequest(
        broker_id=fetches.FOLLOWER,
        cluster_id=cluster_id,
        incarnation_id=uuid4(),
        listeners=[listener],
        features=features,
        log_dirs=[uuid4()],
    )
    return frames.request(REGISTRATION_VERSION, body)


def _prepared(port: int, row: FollowerRow) -> UUID:
    broker.ask(port, _create(row, FOR_EVER))
    for partition in range(row.with_records):
        for _batch in range(row.batches):
            broker.ask_until_ready(port, _produce(row, partition))
    return broker.topic_id(port, row.topic)


def _create(row: FollowerRow, configs: Mapping[str, str]) -> frames.Request:
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(
            partition_index=index, broker_ids=[LEADER, fetches.FOLLOWER]
        )
        for index in range(row.partitions)
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name=row.topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=frames.topic_configs(configs),
    )
    body = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return frames.request(frames.CREATE_TOPICS_VERSION, body)


def _produce(row: FollowerRow, partition: int) -> frames.Request:
    """Return the request that writes one batch. It has one partition, so that a second attempt writes nothing
    twice.
    """
    body = bodies.produce({row.topic: [partition]}, row.batch, timeout_ms=10_000)
    return frames.request(frames.PRODUCE_VERSION, body)
