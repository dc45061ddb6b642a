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
from proxy.rules import inquiries
from proxy.rules.errand import Errand, ask
from proxy.rules.inquiries import NAMES_WITHOUT_CREATION, Asking, Topics, broker_versions, found_in
from proxy.rules.plan import PASS, WAIT, Admission, Caller, Plan, Wait
from proxy.rules.rewrite import edit_metadata
from proxy.rules.uplift import forward
from quotas import MutationBudget, MutationCharge

MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
"""What a broker says of a topic that it is about to create: the former with KRaft, the latter before."""
HARMLESS_MS: Final = 1000
HARMLESS_MAX: Final = 1000
"""Requests per version and dialect."""
HARMLESS_BYTES_MAX: Final = 10_000


def plan_metadata(plan: Plan) -> None:
    """Watch what is asked for by clients that have a mutation quota."""
    codec_ = codec(MetadataRequest, plan.version)
    flexible = plan.flexible_request
    unwatched = plan.admit
    harmless = _Harmless()

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
            asked = bytes(data[body:end])
            if not harmless.has(asked, caller):
                request = codec_.decode(asked)
                if request.allow_auto_topic_creation and any(topic.name for topic in request.topics or ()):
                    return Admission(errand=_watched(caller, plan, budget, request, harmless, asked))
                harmless.add(asked, caller)
        return PASS if unwatched is None else unwatched(caller, data, frame, end, complete)

    plan.admit, plan.whole = admit, True


class _Harmless:
    """Requests that created nothing a moment ago, as all their topics existed: one of them need not be looked
    at again at once. Topics that are deleted through Weir end that, those deleted past it do after a second.
    """

    def __init__(self) -> None:
        self._until_ms: dict[bytes, int] = {}
        self._deletions = 0

    def has(self, asked: bytes, caller: Caller) -> bool:
        deletions = caller.dialect.recent_topics.deletions
        if deletions != self._deletions or len(self._until_ms) > HARMLESS_MAX:
            self._until_ms.clear()
            self._deletions = deletions
        return self._until_ms.get(asked, caller.now_ms) > caller.now_ms

    def add(self, asked: bytes, caller: Caller) -> None:
        if len(asked) <= HARMLESS_BYTES_MAX:
            self._until_ms[asked] = caller.now_ms + HARMLESS_MS


def look_for_missed(caller: Caller, budget: MutationBudget, charge: MutationCharge) -> Asking[None]:
    """Charge the topics that have come since this client has missed them."""
    expected = caller.dialect.missing_topics.of(budget)
    if expected:
        there = yield from inquiries.told(caller, expected)
        _charge_arrived(caller, charge, expected, there)


def _charge_arrived(caller: Caller, charge: MutationCharge, expected: list[str], there: Topics) -> None:
    missing_topics, now_ms = caller.dialect.missing_topics, caller.now_ms
    for name in expected:
        found = there.by_name.get(name)
        if found is not None:
            charge.admit(found.partitions, now_ms)
            missing_topics.came(name)
            caller.dialect.recent_topics.learn(name, found.partitions, found.topic_id, now_ms)
    missing_topics.did_not_come(expected, now_ms)


def _watched(
    caller: Caller,
    plan: Plan,
    budget: MutationBudget,
    request: MetadataRequest,
    harmless: _Harmless,
    asked: bytes,
) -> Errand:
    """Ask what the client asks; charge the topics that have come since, and expect those that are missing."""
    charge = budget.begin(strict=False)
    yield from look_for_missed(caller, budget, charge)
    answer = yield from _asked(caller, plan, budget, request)
    _charge_arrived(caller, charge, caller.dialect.missing_topics.of(budget), found_in([answer]))
    missing = [topic.name for topic in answer.topics if topic.error_code in MISSING and topic.name]
    if not missing:
        harmless.add(asked, caller)
    elif request.allow_auto_topic_creation:
        left_out = caller.dialect.missing_topics.expect(missing, budget, caller.now_ms)
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
