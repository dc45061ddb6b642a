"""What queries ask a broker about its cluster: partitions of topics, the default number of partitions.

Asked on the client's own connection and as that client: no credentials of Weir's are needed, and the
broker's ACLs count. What brokers say of topics may be some seconds late; what was done through Weir is known.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from protocol.api import ApiKey, versions
from protocol.error_codes import ErrorCode
from protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from protocol.values import ZERO_UUID
from protocol.versions import VersionRange
from proxy.handlers.broker_query import Question, ask
from proxy.handlers.plan import Context
from proxy.handlers.uplift.uplift import learn_versions

T = TypeVar("T")
Asking: TypeAlias = Generator[Question, Message, T]

NAMES_WITHOUT_CREATION: Final = 4
"""The version of Metadata from which a topic can be asked for without being created (KIP-204)."""
TOPIC_IDS: Final = 10
BY_TOPIC_ID: Final = 12
"""The version of Metadata from which topics can be asked for by id (KIP-516)."""
_METADATA_NEWEST: Final = 12
_BROKER_RESOURCE: Final = 4
_NUM_PARTITIONS: Final = "num.partitions"


@dataclass(frozen=True, slots=True)
class Found:
    """A topic that exists."""

    name: str
    topic_id: UUID
    partitions: int


@dataclass(slots=True)
class Topics:
    """Those of the topics asked for that exist, and the brokers."""

    by_name: dict[str, Found] = field(default_factory=dict)
    by_id: dict[UUID, Found] = field(default_factory=dict)
    broker_ids: set[int] = field(default_factory=set)

    def add(self, topic: Found) -> None:
        """A topic that exists."""
        self.by_name[topic.name] = topic
        if topic.topic_id != ZERO_UUID:
            self.by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """A topic that does not exist any more."""
        topic = self.by_name.pop(name, None)
        if topic is not None:
            self.by_id.pop(topic.topic_id, None)


def broker_versions(context: Context) -> Asking[Mapping[int, VersionRange]]:
    """Find out what the broker speaks, by API key: asked once per connection, if the client has not."""
    if context.broker_versions.broker is None:
        yield from learn_versions(context)
    return context.broker_versions.broker or {}


def topics(context: Context, names: Collection[str], ids: Collection[UUID] = ()) -> Asking[Topics]:
    """Look for topics, by name or id. None is created by being asked for."""
    found = yield from told(context, names, ids)
    recent, now_ms = context.cluster.recent_topics, context.now_ms
    unknown = (recent.named(topic_id) for topic_id in ids if topic_id not in found.by_id)
    for name in {*names, *filter(None, unknown)}:
        known, there = recent.get(name, now_ms), found.by_name.get(name)
        if known is not None and not known.partitions:
            if there is None or known.topic_id in (ZERO_UUID, there.topic_id):  # else it is a new topic
                found.remove(name)
        elif known is not None and (there is None or there.partitions < known.partitions):
            found.add(Found(name, known.topic_id if there is None else there.topic_id, known.partitions))
    return found


def told(context: Context, names: Collection[str], ids: Collection[UUID] = ()) -> Asking[Topics]:
    """What the broker says, though it may be late."""
    spoken = (yield from broker_versions(context)).get(ApiKey.METADATA, VersionRange(0, 1))
    version = min(spoken.max, _METADATA_NEWEST)
    if version < NAMES_WITHOUT_CREATION:
        answer = yield from ask(MetadataRequest(topics=None), 1, MetadataResponse)
        return found_in([answer])
    if ids and version < BY_TOPIC_ID:
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return found_in([(yield from ask(everything, version, MetadataResponse))])
    wanted, answers = MetadataRequest.MetadataRequestTopic, []
    by_id = [wanted(name=None, topic_id=topic_id) for topic_id in ids if topic_id != ZERO_UUID]
    for some in ([wanted(name=name) for name in names], by_id):  # apart: beside ids, names are not looked at
        if some:
            request = MetadataRequest(topics=some, allow_auto_topic_creation=False)
            answers.append((yield from ask(request, version, MetadataResponse)))
    return found_in(answers)


def found_in(answers: Collection[MetadataResponse]) -> Topics:
    """The topics in these answers that exist."""
    found = Topics(broker_ids={broker.node_id for answer in answers for broker in answer.brokers})
    for topic in chain.from_iterable(answer.topics for answer in answers):
        if topic.name is None or not topic.partitions:
            continue
        found.add(Found(topic.name, topic.topic_id, len(topic.partitions)))
    return found


def default_partitions(context: Context) -> Asking[int | None]:
    """Find out how many partitions a topic gets that is created without saying (num.partitions).

    None if the broker does not tell: it is unknown which one it is, or the client may not describe configs.
    """
    spoken = (yield from broker_versions(context)).get(ApiKey.DESCRIBE_CONFIGS)
    ours = versions(ApiKey.DESCRIBE_CONFIGS)
    common = spoken.intersect(ours) if spoken is not None and ours is not None else None
    if not common or context.node_id is None:
        return None
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE,
        resource_name=str(context.node_id),
        configuration_keys=[_NUM_PARTITIONS],
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = yield from ask(request, common.min, DescribeConfigsResponse)
    for result in answer.results:
        for config in result.configs:
            if result.error_code == ErrorCode.NONE and config.name == _NUM_PARTITIONS:
                return int(config.value) if config.value and config.value.isdecimal() else None
    return None
