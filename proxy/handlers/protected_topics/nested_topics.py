"""WriteTxnMarkers and AlterReplicaLogDirs: their topics are inside of markers and directories.

Brokers require a permission on the cluster for both, and refuse with CLUSTER_AUTHORIZATION_FAILED for each
partition. Weir uses this code: Java's AbortTransactionHandler (KIP-664) knows no error code of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    Message,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from weir.proxy.handlers.broker_query import Asking, BrokerQuery

Nested: TypeAlias = WriteTxnMarkersRequest | AlterReplicaLogDirsRequest
Forward: TypeAlias = "Callable[[Message], Asking[Message]]"

_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def nested_names(request: Nested) -> set[str]:
    """Return the names of all topics in the request."""
    outer = request.markers if isinstance(request, WriteTxnMarkersRequest) else request.dirs
    return {topic.name for one in outer for topic in one.topics}


def without_nested(request: Nested, names: Collection[str], forward: Forward) -> BrokerQuery:
    """Forward the request without the topics `names`, if others remain; return the response, with refusals of
    `names` added.
    """
    if isinstance(request, WriteTxnMarkersRequest):
        return _without_markers(request, names, forward)
    return _without_moves(request, names, forward)


def _without_markers(
    request: WriteTxnMarkersRequest, names: Collection[str], forward: Forward
) -> BrokerQuery:
    kind = WriteTxnMarkersResponse
    refused = [
        (marker.producer_id, topic)
        for marker in request.markers
        for topic in marker.topics
        if topic.name in names
    ]
    for marker in request.markers:
        marker.topics = [topic for topic in marker.topics if topic.name not in names]
    request.markers = [marker for marker in request.markers if marker.topics]
    answer = cast("WriteTxnMarkersResponse", (yield from forward(request))) if request.markers else kind()
    # Java's WriteTxnMarkersResponse.errorsByProducerId forgets all results of a producer except the last.
    results = {marker.producer_id: marker for marker in answer.markers}
    for producer_id, topic in refused:
        if producer_id not in results:
            results[producer_id] = kind.WritableTxnMarkerResult(producer_id=producer_id)
            answer.markers.append(results[producer_id])
        partitions = [
            kind.WritableTxnMarkerPartitionResult(partition_index=index, error_code=_REFUSED)
            for index in topic.partition_indexes
        ]
        results[producer_id].topics.append(
            kind.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)
        )
    return answer


def _without_moves(
    request: AlterReplicaLogDirsRequest, names: Collection[str], forward: Forward
) -> BrokerQuery:
    kind = AlterReplicaLogDirsResponse
    refused = [topic for one in request.dirs for topic in one.topics if topic.name in names]
    for one in request.dirs:
        one.topics = [topic for topic in one.topics if topic.name not in names]
    request.dirs = [one for one in request.dirs if one.topics]
    answer = cast("AlterReplicaLogDirsResponse", (yield from forward(request))) if request.dirs else kind()
    for topic in refused:
        partitions = [
            kind.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_REFUSED)
            for index in topic.partitions
        ]
        answer.results.append(
            kind.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions)
        )
    return answer
