"""Topics that a broker creates by itself, under limits on the number of topics and partitions: those that are
missing in a Metadata request, and the internal topics of a streams group (KIP-1071).

A Metadata request that may create topics is looked up first, without creating any. Topics above a limit are
left out of it, and answered as unknown, as by a broker whose policy refuses to create them.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from weir.proxy.handlers.addresses.rewrite import edit_metadata
from weir.proxy.handlers.broker_query import Asking, BrokerQuery
from weir.proxy.handlers.mutations import topic_queries
from weir.proxy.handlers.mutations.auto_creation import MISSING, as_asked, watched
from weir.proxy.handlers.mutations.streams_groups import (
    MISSING_INTERNAL_TOPICS,
    ChargedHeartbeat,
    internal_topics,
)
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.topic_counts.counted_requests import plan_counted
from weir.proxy.handlers.uplift.uplift import forward
from weir.quotas.topic_counts import LATE, TopicGrowth

_MAY_BE_DONE: Final = MISSING | {ErrorCode.NONE}
_EMPTY_LIST: Final = 1
"""First version of Metadata in which an empty list of topics asks for none."""


def plan_metadata(plan: Plan) -> None:
    """Have Metadata requests create no topic above a limit."""
    plan_counted(plan, MetadataRequest, _metadata_query, _is_harmless)


def _is_harmless(context: Context, plan: Plan, data: bytearray, frame: int, end: int) -> bool:
    asked = as_asked(context, plan, data, frame, end)
    return asked is not None and context.cluster.harmless_requests.has(asked, context.now_ms)


def _metadata_query(
    context: Context, plan: Plan, client_id: str, request: MetadataRequest
) -> BrokerQuery | None:
    counted = context.cluster.counted_topics
    names = [topic.name for topic in request.topics or () if topic.name and counted.has(topic.name)]
    if not names or not request.allow_auto_topic_creation:
        return None
    return _metadata(context, plan, client_id, request, names)


def _metadata(
    context: Context, plan: Plan, client_id: str, request: MetadataRequest, names: Collection[str]
) -> BrokerQuery:
    counted = context.cluster.counted_topics
    with counted.held(context) as held:
        refused = yield from _reserved(context, names, held)
        return (yield from _metadata_of(context, plan, client_id, request, held, refused))


def _metadata_of(
    context: Context,
    plan: Plan,
    client_id: str,
    request: MetadataRequest,
    held: set[str],
    refused: Collection[str],
) -> Asking[MetadataResponse]:
    rest = [topic for topic in request.topics or () if topic.name not in refused]
    if refused:
        request = replace(request, topics=rest, unknown_tagged_fields=())
    answer = yield from _asked(context, plan, client_id, request)
    codes = {topic.name: topic.error_code for topic in answer.topics}
    sizes = {name: LATE if codes.get(name, ErrorCode.NONE) in _MAY_BE_DONE else None for name in held}
    context.cluster.counted_topics.settle_held(held, sizes, context.now_ms)
    unknown = MetadataResponse.MetadataResponseTopic
    answer.topics += [unknown(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name) for name in refused]
    return answer


def _reserved(context: Context, names: Collection[str], held: set[str]) -> Asking[Collection[str]]:
    """Return those of the missing topics that may not be created; add the others to `held`."""
    there = yield from topic_queries.topics(context, names)
    missing = [name for name in dict.fromkeys(names) if name not in there.by_name]
    partitions = (yield from topic_queries.created_partitions(context)) if missing else 0
    if not partitions:
        return ()
    wanted = [TopicGrowth(name, 0, partitions) for name in missing]
    reasons = yield from context.cluster.counted_topics.reserve(wanted)
    refused = {name: why for name, why in zip(missing, reasons, strict=True) if why}
    held.update(name for name in missing if name not in refused)
    return refused


def _asked(
    context: Context, plan: Plan, client_id: str, request: MetadataRequest
) -> Asking[MetadataResponse]:
    """Forward a Metadata request, and watch its creations if they are charged to a quota on mutations."""
    if not request.topics:
        version = max(plan.broker_version, _EMPTY_LIST)
        answer = yield from forward(plan, request, MetadataResponse, version)
    else:
        ledger = context.client.quotas.mutation_ledger(context.client.user, client_id, context.now_ms)
        if ledger is not None:
            return (yield from watched(context, plan, ledger, request))
        answer = yield from forward(plan, request, MetadataResponse)
    edit_metadata(answer, context.addresses)
    return answer


def plan_streams_group_heartbeat(plan: Plan) -> None:
    """Refuse a StreamsGroupHeartbeat request whose topology needs topics above a limit."""
    plan_counted(plan, StreamsGroupHeartbeatRequest, _heartbeat_query)


def _heartbeat_query(
    context: Context, plan: Plan, client_id: str, request: StreamsGroupHeartbeatRequest
) -> BrokerQuery | None:
    if request.topology is None or request.member_epoch < 0:
        return None
    return _heartbeat(context, plan, client_id, request)


def _heartbeat(
    context: Context, plan: Plan, client_id: str, request: StreamsGroupHeartbeatRequest
) -> BrokerQuery:
    counted = context.cluster.counted_topics
    assert request.topology is not None
    topics = yield from internal_topics(request.topology.subtopologies)
    named = {name: partitions for name, partitions in topics.items() if counted.has(name)}
    there = (yield from topic_queries.topics(context, named)) if named else topic_queries.Topics()
    wanted = [
        TopicGrowth(name, 0, partitions) for name, partitions in named.items() if name not in there.by_name
    ]
    with counted.held(context) as held:
        reasons = yield from counted.reserve(wanted)
        held.update(growth.name for growth, why in zip(wanted, reasons, strict=True) if not why)
        return (
            yield from _heartbeat_of(context, plan, client_id, request, held, next(filter(None, reasons), ""))
        )


def _heartbeat_of(
    context: Context,
    plan: Plan,
    client_id: str,
    request: StreamsGroupHeartbeatRequest,
    held: set[str],
    refused: str,
) -> Asking[StreamsGroupHeartbeatResponse]:
    counted = context.cluster.counted_topics
    if refused:
        counted.settle_held(held, dict.fromkeys(held), context.now_ms)
        return StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.POLICY_VIOLATION,
            error_message=refused,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
        )
    ledger = context.client.quotas.mutation_ledger(context.client.user, client_id, context.now_ms)
    if ledger is not None:
        answer = yield from ChargedHeartbeat(context, plan, ledger, request).query()
    else:
        answer = yield from forward(plan, request, StreamsGroupHeartbeatResponse)
    creates = any(status.status_code == MISSING_INTERNAL_TOPICS for status in answer.status or ())
    counted.settle_held(held, dict.fromkeys(held, LATE if creates else None), context.now_ms)
    return answer
