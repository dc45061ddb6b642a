"""Questions to the broker about topics, their partitions, and the default number of partitions. Queries of
other modules use them.

Weir sends these requests on the client's own connection, so Weir needs no credentials, and the client's ACLs
apply. A broker's Metadata may be seconds late; changes made through Weir are known at once.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final
from uuid import UUID

from weir.protocol.api import ApiKey, versions
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.protocol.pieces import PIECE_ITEMS, Pieces, each, release
from weir.protocol.values import ZERO_UUID
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.broker_query import Asking, ask
from weir.proxy.handlers.plan import Context
from weir.proxy.handlers.uplift.uplift import learn_versions

NAMES_WITHOUT_CREATION: Final = 4
"""First version of Metadata that can ask for a topic without creating it (KIP-204)."""
TOPIC_IDS: Final = 10
BY_TOPIC_ID: Final = 12
"""First version of Metadata that can ask for topics by id (KIP-516)."""
_METADATA_NEWEST: Final = 12
_BROKER_RESOURCE: Final = 4
_NUM_PARTITIONS: Final = "num.partitions"
_AUTO_CREATE: Final = "auto.create.topics.enable"


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """An existing topic: its name, id and number of partitions."""

    name: str
    topic_id: UUID
    partitions: int


@dataclass(slots=True)
class Topics:
    """Result of a look-up: existing topics by name and by id, and the ids of the cluster's brokers."""

    by_name: dict[str, ExistingTopic] = field(default_factory=dict)
    by_id: dict[UUID, ExistingTopic] = field(default_factory=dict)
    broker_ids: set[int] = field(default_factory=set)

    def add(self, topic: ExistingTopic) -> None:
        """Add an existing topic to the result."""
        self.by_name[topic.name] = topic
        if topic.topic_id != ZERO_UUID:
            self.by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Remove a topic from the result, because the topic was deleted."""
        topic = self.by_name.pop(name, None)
        if topic is not None:
            self.by_id.pop(topic.topic_id, None)


def broker_versions(context: Context) -> Asking[Mapping[int, VersionRange]]:
    """Return the broker's version ranges by API key. If Weir does not know them yet, ask the broker for them,
    once per connection.
    """
    if context.broker_versions.broker is None:
        yield from learn_versions(context)
    return context.broker_versions.broker or {}


def topics(context: Context, names: Collection[str], ids: Collection[UUID] = ()) -> Asking[Topics]:
    """Return the existing topics among the given ones, by the broker's Metadata and by recent changes made
    through Weir. The request to the broker creates no topic.
    """
    found = yield from broker_topics(context, names, ids)
    recent, now_ms = context.cluster.recent_topics, context.now_ms
    unknown = (recent.named(topic_id) for topic_id in ids if topic_id not in found.by_id)
    for number, name in enumerate({*names, *filter(None, unknown)}):
        if number % PIECE_ITEMS == PIECE_ITEMS - 1:
            yield None
        known, there = recent.get(name, now_ms), found.by_name.get(name)
        if known is not None and not known.partitions:
            if there is None or known.topic_id in (ZERO_UUID, there.topic_id):  # else it is a new topic
                found.remove(name)
        elif known is not None and (there is None or there.partitions < known.partitions):
            found.add(
                ExistingTopic(name, known.topic_id if there is None else there.topic_id, known.partitions)
            )
    return found


def broker_topics(context: Context, names: Collection[str], ids: Collection[UUID] = ()) -> Asking[Topics]:
    """Return the given topics that the broker's Metadata shows, which may be seconds late. An old broker is
    asked for all topics, and the result may contain others than the given ones.
    """
    spoken = (yield from broker_versions(context)).get(ApiKey.METADATA, VersionRange(0, 1))
    version = min(spoken.max, _METADATA_NEWEST)
    if version < NAMES_WITHOUT_CREATION:
        answer = yield from ask(MetadataRequest(topics=None), 1, MetadataResponse)
        return (yield from _taken_from([answer]))
    if ids and version < BY_TOPIC_ID:
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return (yield from _taken_from([(yield from ask(everything, version, MetadataResponse))]))
    wanted, answers = MetadataRequest.MetadataRequestTopic, []
    by_name = yield from each(lambda name: wanted(name=name), names)
    by_id = yield from each(lambda topic_id: wanted(name=None, topic_id=topic_id), set(ids) - {ZERO_UUID})
    for some in (by_name, by_id):  # apart: beside ids, names are ignored
        if some:
            request = MetadataRequest(topics=some, allow_auto_topic_creation=False)
            answers.append((yield from ask(request, version, MetadataResponse)))
    return (yield from _taken_from(answers))


def _taken_from(answers: Collection[MetadataResponse]) -> Pieces[Topics]:
    """Return the existing topics in these Metadata responses. Then free the responses' memory in pieces, so
    that other connections are not delayed.
    """
    found = yield from found_in(answers)
    for answer in answers:
        yield from release(answer.topics)
    return found


def found_in(answers: Collection[MetadataResponse]) -> Pieces[Topics]:
    """Return the existing topics and the brokers in these Metadata responses."""
    found = Topics(broker_ids={broker.node_id for answer in answers for broker in answer.brokers})
    for number, topic in enumerate(chain.from_iterable(answer.topics for answer in answers)):
        if number % PIECE_ITEMS == PIECE_ITEMS - 1:
            yield None
        if topic.name is None or not topic.partitions:
            continue
        found.add(ExistingTopic(topic.name, topic.topic_id, len(topic.partitions)))
    return found


def default_partitions(context: Context) -> Asking[int | None]:
    """Ask the broker for num.partitions, its default number of partitions, and return it; None if unknown."""
    value = (yield from _broker_configs(context)).get(_NUM_PARTITIONS)
    return int(value) if value and value.isdecimal() else None


def created_partitions(context: Context) -> Asking[int]:
    """Return the number of partitions of a topic that the broker creates by itself: 1 if unknown, 0 if it
    creates none (auto.create.topics.enable).
    """
    configs = yield from _broker_configs(context)
    value = configs.get(_NUM_PARTITIONS)
    if configs.get(_AUTO_CREATE) == "false":
        return 0
    return int(value) if value and value.isdecimal() else 1


def _broker_configs(context: Context) -> Asking[dict[str, str | None]]:
    """Ask the broker for its configuration of new topics. Return nothing if the broker's id is unknown, or
    the client may not describe configs.
    """
    spoken = (yield from broker_versions(context)).get(ApiKey.DESCRIBE_CONFIGS)
    ours = versions(ApiKey.DESCRIBE_CONFIGS)
    common = spoken.intersect(ours) if spoken is not None and ours is not None else None
    if not common or context.node_id is None:
        return {}
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE,
        resource_name=str(context.node_id),
        configuration_keys=[_NUM_PARTITIONS, _AUTO_CREATE],
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = yield from ask(request, common.min, DescribeConfigsResponse)
    told = (result.configs for result in answer.results if result.error_code == ErrorCode.NONE)
    return {config.name: config.value for config in chain.from_iterable(told)}
