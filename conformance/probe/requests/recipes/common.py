"""Values of fields that mean the same in each API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weir.protocol.values import ZERO_UUID

if TYPE_CHECKING:
    from weir.conformance.probe.requests.names import Names

Recipe = dict[str, Sequence[object]]

WAIT_MS: Final = 100
"""Longest time (ms) for which a request lets the target wait for records."""
WORK_MS: Final = 5_000
"""Time (ms) that a request gives the target for its work. Enough, so that no outcome depends on the load."""
UNKNOWN_PRODUCER: Final = 1 << 40
"""A producer id that no producer has got: producer ids ascend from 0."""
TOPIC: Final = 2
"""Type of a resource (org.apache.kafka.common.config.ConfigResource)."""
MEMBER: Final = "weir-probe-member"
"""Id of a group's member that does not exist."""
USER: Final = "weir-probe"


def common(names: Names) -> Recipe:
    """Return the values of fields that mean the same in each API."""
    return {
        "<topicName>": (names.topic, names.absent_topic),
        "<groupId>": (names.group,),
        "<transactionalId>": (names.group,),
        "<producerId>": (UNKNOWN_PRODUCER,),
        "<brokerId>": (names.node_id,),
        "topic_id": (names.topic_id, names.absent_id),
        "partition": (0, 1, 2),
        "partition_index": (0, 1, 2),
        "partition_indexes": (0, 1, 2),
        "partitions": (0, 1, 2),
        "timeout_ms": (WORK_MS,),
        "max_wait_ms": (0, WAIT_MS),
        "min_bytes": (0, 1),
        "replica_id": (-1,),
        "replica_epoch": (-1,),
        "replica_directory_id": (ZERO_UUID,),
        "current_leader_epoch": (-1, 0),
        "member_id": (MEMBER,),
        "validate_only": (True,),
        "isolation_level": (0, 1),
    }
