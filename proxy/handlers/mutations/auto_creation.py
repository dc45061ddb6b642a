"""Automatic creation of topics by Metadata requests (allow_auto_topic_creation).

A client is charged the number of partitions of each topic that its Metadata request creates (KIP-599). The
charge comes when the topic exists already, so it may make the client's balance negative. A broker does not
report the creation. It answers that the topic is missing, and moments later the topic exists. So Weir records
the missing topics of a request, looks for them when the same client sends Metadata again (`LOOKED_FOR_MAX` at
a time), and charges those that exist by then. Requests of clients without a mutation quota are forwarded
unchanged, and so are requests that can create no topic.

A client with a negative balance may not create topics: Weir removes the
permission from the request, where the broker's version has the field (v4, Kafka 0.11). Pending creations
count as one partition each, so that a burst of requests creates little more than a client has tokens for.

With a shadow quota alone, topics are looked for and charged too, but no client is throttled.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import CLIENT_ID_OFFSET, client_id_end
from weir.protocol.messages import MetadataRequest, MetadataResponse
from weir.protocol.pieces import Pieces, each
from weir.proxy.handlers.addresses.rewrite import edit_metadata
from weir.proxy.handlers.broker_query import Asking
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Forward, Query, Wait
from weir.proxy.handlers.mutations import topic_queries
from weir.proxy.handlers.mutations.charged_mutation import throttle
from weir.proxy.handlers.mutations.cluster_state import HARMLESS_BYTES_MAX, Asked
from weir.proxy.handlers.mutations.decoded_requests import ChargedRequests
from weir.proxy.handlers.mutations.pending_creations import Counted
from weir.proxy.handlers.mutations.topic_queries import (
    NAMES_WITHOUT_CREATION,
    ExistingTopic,
    Topics,
    broker_versions,
    found_in,
)
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.uplift.uplift import forward
from weir.quotas import LateCharge, MutationLedger

MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
"""Error codes with which a broker answers for a topic that it is about to create: the first with KRaft, the
second with ZooKeeper.
"""


def plan_metadata(plan: Plan) -> None:
    """Record topics that are missing in Metadata responses, because the broker may be creating them
    automatically, and charge them to the client that has asked once they exist. Only for clients with a
    mutation quota.
    """
    requests, is_innermost = ChargedRequests(plan, MetadataRequest), plan.admit is None
    pass_on = requests.pass_on

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        asked = as_asked(context, plan, data, frame, end) if complete else None
        if asked is not None and context.cluster.harmless_requests.has(asked, context.now_ms):
            return pass_on(context, data, frame, end, complete)
        client_id = context.client.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        ledger = context.client.quotas.mutation_ledger(context.client.user, client_id, context.now_ms)
        if ledger is None:
            if is_innermost and not context.cluster.counted_topics.prefixes:
                context.client.cache_parse(plan, data, frame, client_id_end(data, frame, end))
            return pass_on(context, data, frame, end, complete)
        request = requests.read(context, data, frame, end, complete, enforced=ledger.enforced is not None)
        if not isinstance(request, MetadataRequest):
            return request
        if request.allow_auto_topic_creation and any(topic.name for topic in request.topics or ()):
            return Query(watched(context, plan, ledger, request, asked))
        if asked is not None:
            context.cluster.harmless_requests.add(asked, context.now_ms)
        return pass_on(context, data, frame, end, complete)

    plan.admit, plan.decide, plan.whole = admit, _unlimited, True


def _unlimited(_context: Context, _parsed: int, _data: bytearray, _stop: int) -> Forward:
    return FORWARD


def as_asked(context: Context, plan: Plan, data: bytearray, frame: int, end: int) -> Asked | None:
    """Return the key of the whole Metadata request `data[frame:end]`; None if it is too long to be remembered
    as harmless.
    """
    if end - frame > HARMLESS_BYTES_MAX:
        return None
    return plan.version, context.client.user, bytes(data[frame + CLIENT_ID_OFFSET : end])


def charge_created(context: Context, ledger: MutationLedger, charge: LateCharge) -> Asking[None]:
    """Charge topics that earlier Metadata requests of the client have created automatically: ask the broker
    for the topics that were missing then, and charge those that exist now.
    """
    expected = context.cluster.pending_creations.looked_for(ledger)
    if expected:
        there = yield from topic_queries.broker_topics(context, expected)
        yield from _charge_arrived(context, ledger, charge, there)
        context.cluster.pending_creations.expire(expected, context.now_ms)


def _charge_arrived(
    context: Context, ledger: MutationLedger, charge: LateCharge, there: Topics
) -> Pieces[None]:
    """Charge this ledger for those existing topics `there` that were missing when the ledger's clients asked
    for them, and that the broker has since created.
    """

    def charge_if_pending(found: ExistingTopic) -> None:
        pending = context.cluster.pending_creations.take(found.name, ledger)
        if pending is not None:
            charge.charge(max(found.partitions - pending.charged, 0), context.now_ms)
            context.cluster.recent_topics.learn(found.name, found.partitions, found.topic_id, context.now_ms)

    yield from each(charge_if_pending, there.by_name.values())


def watched(
    context: Context,
    plan: Plan,
    ledger: MutationLedger,
    request: MetadataRequest,
    asked: Asked | None = None,
) -> Asking[MetadataResponse]:
    """Forward the client's Metadata request and return the response. Charge topics that were missing in
    earlier responses and exist now. Record topics that are missing in this response, because the broker may
    be creating them. `asked` is the key of the request; None if equal requests are not to be remembered.
    """
    charge = ledger.begin_late()
    yield from charge_created(context, ledger, charge)
    answer, counted = yield from _asked(context, plan, ledger, request)
    cluster = context.cluster
    yield from _charge_arrived(context, ledger, charge, (yield from found_in([answer])))
    missing = [topic.name for topic in answer.topics if topic.error_code in MISSING and topic.name]
    if missing and request.allow_auto_topic_creation:
        without_room = sum((yield from each(partial(_expect, context, ledger), missing)))
        if without_room:
            charge.charge(without_room, context.now_ms)
    elif asked is not None and not missing:
        now_ms = context.now_ms
        if not any(cluster.recent_topics.is_gone(topic.name or "", now_ms) for topic in answer.topics):
            cluster.harmless_requests.add(asked, now_ms)
    if counted is not None:
        cluster.pending_creations.answered(counted)
    throttle_ms = throttle(context, charge.finish(context.now_ms), int(charge.taken), 0)
    answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
    edit_metadata(answer, context.addresses)
    return answer


def _expect(context: Context, ledger: MutationLedger, name: str) -> int:
    """Record a missing topic, which the broker may be creating. Return 1 if the topic was not recorded
    because the ledger has too many such topics already; else 0.
    """
    cluster, now_ms = context.cluster, context.now_ms
    if cluster.recent_topics.exists(name, now_ms):  # Metadata is late
        return 0
    return cluster.pending_creations.add([name], ledger, now_ms)


def _asked(
    context: Context, plan: Plan, ledger: MutationLedger, request: MetadataRequest
) -> Asking[tuple[MetadataResponse, Counted | None]]:
    """Forward the Metadata request. Return the response, and the entry of the topics that count as pending
    until the caller has recorded the missing ones; None if there is no entry.

    First remove the permission to create topics if the client's balance is negative. Topics that the broker
    may still be creating for the client lower the balance by one partition each; so do topics of unanswered
    requests. Otherwise many connections at once would all be permitted.
    """
    budget, pending = ledger.enforced, context.cluster.pending_creations
    if budget is None:
        return (yield from forward(plan, request, MetadataResponse)), None
    if budget.tokens(context.now_ms) < pending.number(ledger, context.now_ms):
        spoken = (yield from broker_versions(context)).get(ApiKey.METADATA)
        if spoken is not None and spoken.max >= NAMES_WITHOUT_CREATION:
            request.allow_auto_topic_creation = False
            version = max(plan.broker_version, NAMES_WITHOUT_CREATION)
            return (yield from forward(plan, request, MetadataResponse, version)), None
    exists = context.cluster.recent_topics.exists
    missing = sum(not exists(topic.name or "", context.now_ms) for topic in request.topics or ())
    counted = pending.forwarded(ledger, missing, context.now_ms)
    return (yield from forward(plan, request, MetadataResponse)), counted
