"""Topics that come into being by being asked for: Metadata with allow_auto_topic_creation.

Each costs its client the partitions that it gets (KIP-599), permissively: it is there already. A broker does
not say that it creates a topic. It says that there is none yet, and some moments later the topic is there; so
Weir remembers who asked for what was missing, looks for it when the same client asks for topics again, and
charges it then. Requests of clients without a mutation quota, and those that can create nothing, pass as they
are.

With `auto_creation = "strict"`, a client whose balance is negative is not allowed to create: the permission
is taken out of its request, where the broker's version has it (v4, Kafka 0.11).
"""

from __future__ import annotations

from typing import Final

from protocol.api import ApiKey
from protocol.codec import codec
from protocol.error_codes import ErrorCode
from protocol.heads import INCOMPLETE, client_id_end, request_body
from protocol.messages import MetadataRequest, MetadataResponse
from proxy import inquiries
from proxy.errand import Errand, ask
from proxy.inquiries import NAMES_WITHOUT_CREATION, Asking, broker_versions
from proxy.plan import PASS, WAIT, Admission, Caller, Plan, Wait
from proxy.rewrite import edit_metadata
from proxy.uplift import forward
from quotas import MutationBudget

MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
"""What a broker says of a topic that it is about to create: the former with KRaft, the latter before."""


def plan_metadata(plan: Plan) -> None:
    """Watch what is asked for by clients that have a mutation quota."""
    codec_ = codec(MetadataRequest, plan.version)
    flexible = plan.flexible_request
    unwatched = plan.admit

    def admit(caller: Caller, data: bytearray, frame: int, end: int, complete: bool) -> Admission | Wait:
        client_id = caller.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        budget = caller.quotas.mutations.budget(caller.user, client_id, caller.now_ms)
        if budget is None and unwatched is None:
            stop = client_id_end(data, frame, end)
            caller.remember(plan, data, frame, stop, PASS)
        elif budget is not None:
            body = request_body(data, frame, end, flexible=flexible) if complete else INCOMPLETE
            if body == INCOMPLETE:
                return WAIT
            request = codec_.decode(data, body, end)
            if request.allow_auto_topic_creation and any(topic.name for topic in request.topics or ()):
                return Admission(errand=_watched(caller, plan, budget, request))
        return PASS if unwatched is None else unwatched(caller, data, frame, end, complete)

    plan.admit, plan.whole = admit, True


def _watched(caller: Caller, plan: Plan, budget: MutationBudget, request: MetadataRequest) -> Errand:
    """Ask what the client asks; charge the topics that have come since, and expect those that are missing."""
    missing_topics = caller.dialect.missing_topics
    charge = budget.begin(strict=False)
    expected = missing_topics.of(budget)
    if expected:
        there = yield from inquiries.topics(caller, expected)
        for found in there.by_name.values():
            if found.name in expected:
                charge.admit(found.partitions, caller.now_ms)
                missing_topics.came(found.name)
        missing_topics.did_not_come(expected, caller.now_ms)
    answer = yield from _asked(caller, plan, budget, request)
    missing = [topic.name for topic in answer.topics if topic.error_code in MISSING and topic.name]
    if request.allow_auto_topic_creation:
        left_out = missing_topics.expect(missing, budget, caller.now_ms)
        if left_out:
            charge.admit(left_out, caller.now_ms)
    throttle_ms = charge.finish(caller.now_ms)
    if throttle_ms:
        caller.mute(throttle_ms)
    answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
    edit_metadata(answer, caller.addresses)
    return answer


def _asked(
    caller: Caller, plan: Plan, budget: MutationBudget, request: MetadataRequest
) -> Asking[MetadataResponse]:
    """Forward the request, without the permission to create if the client has no tokens for that."""
    if caller.dialect.strict_auto_creation and budget.tokens(caller.now_ms) < 0:
        spoken = (yield from broker_versions(caller)).get(ApiKey.METADATA)
        if spoken is not None and spoken.max >= NAMES_WITHOUT_CREATION:
            request.allow_auto_topic_creation = False
            version = max(plan.broker_version, NAMES_WITHOUT_CREATION)
            return (yield from ask(request, version, MetadataResponse))
    return (yield from forward(plan, request, MetadataResponse))
