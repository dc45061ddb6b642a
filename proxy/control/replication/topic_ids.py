"""Ids of topics (KIP-516), asked from the cluster: from Fetch v13 on requests name topics by id only."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import MetadataRequest, MetadataResponse
from weir.protocol.values import ZERO_UUID
from weir.protocol.versions import VersionRange
from weir.proxy.control.replication.cluster_connection import ClusterConnection, QueriedBroker

WITH_IDS: Final = VersionRange(10, 12)
"""Versions of Metadata that tell topic ids, and that Weir uses."""
IDS_S: Final = 10.0
"""Time (s) after which new throttles are put in force although no broker has sent the topic ids."""
TOPICS_MAX: Final = 1000
"""Maximum number of topics in a request."""


class TopicIds(NamedTuple):
    """Ids of topics."""

    names: dict[bytes, str]
    """Topic id (16 bytes) → name, for the topics that exist; empty if the broker has no topic ids."""
    missing: str = ""
    """Reason why ids of existing topics are not known; empty if all are known."""


async def ask_topic_ids(cluster: ClusterConnection, topics: Iterable[str]) -> TopicIds:
    """Return the ids of these topics. Raises QuestionError if no broker answers within `IDS_S`."""
    return await cluster.ask(partial(_ask, sorted(topics)), IDS_S)


async def _ask(topics: list[str], broker: QueriedBroker) -> TopicIds:
    version = broker.version(ApiKey.METADATA, WITH_IDS)
    if version is None:
        return TopicIds({})
    found: list[MetadataResponse.MetadataResponseTopic] = []
    for start in range(0, len(topics), TOPICS_MAX):
        request = _request(topics[start : start + TOPICS_MAX])
        found += (await broker.ask(request, MetadataResponse, version)).topics
    known = {
        topic.topic_id.bytes: topic.name for topic in found if topic.topic_id != ZERO_UUID and topic.name
    }
    return TopicIds(known, _missing(broker, found))


def _request(topics: list[str]) -> MetadataRequest:
    names = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def _missing(broker: QueriedBroker, topics: Iterable[MetadataResponse.MetadataResponseTopic]) -> str:
    """Return the text for the first topic that Weir's principal may not describe; empty if there is no such
    topic.
    """
    denied = (topic for topic in topics if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = next(denied, None)
    if topic is None:
        return ""
    return f"{broker.connection.address}: Weir's principal may not describe topic {topic.name}"
