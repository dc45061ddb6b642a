"""Bandwidth quotas on produce and fetch (KIP-13, KIP-124): who pays, what, and when.

Produce is charged when the request has arrived, with the value of its frame length (as a broker does), so
that frames behind it wait out the throttle. Fetch is charged when its response begins to arrive; until then
the client's next requests wait: a broker too handles one request of a connection at a time, and a client that
pipelines fetches would otherwise be sent all of them before it is first throttled.

A fetch of an entity that has been told to wait waits as long, on whatever connection it comes: what it brings
would be delivered, and a new connection per fetch would be a way around the quota. (A broker answers such a
fetch with nothing.) So does the first produce request of a connection: a mute is not got rid of by connecting
anew. (A broker takes it.) Those that follow are muted for what they themselves have cost, as at a broker.

Shadow quotas are charged likewise, and nothing else: they let every request and response pass as if there
were none.

What brokers fetch from each other is not charged: a fetch that claims a replica id, of a principal that is
known to be a broker's. Of anybody else such a fetch is a consumer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ProtocolError
from protocol.heads import INCOMPLETE, client_id_end, request_body
from protocol.messages import FetchRequest, ProduceRequest, ShareFetchRequest
from protocol.places import Place, place
from proxy.rules.followers import Claims, claims
from proxy.rules.plan import LATER, PASS, WAIT, Admission, Caller, Plan, Wait

if TYPE_CHECKING:
    from quotas import Payers

CHARGED = Admission(charged=True)
CHARGED_ALONE = Admission(charged=True, alone=True)
CHARGED_UNREAD = Admission(charged=True, alone=True, unread=True)
CHARGED_UNANSWERED = Admission(charged=True, answered=False)
UNANSWERED = Admission(answered=False)
EXEMPT = Admission(exempt=True)
UNREADABLE = -2
_NOT_LOCATED: dict[int, Admission | Wait] = {INCOMPLETE: WAIT, UNREADABLE: CHARGED_UNREAD}
_PRODUCE = {
    (False, True): PASS,
    (False, False): UNANSWERED,
    (True, True): CHARGED,
    (True, False): CHARGED_UNANSWERED,
}
"""By whether anything limits the client, and whether there will be a response."""


def plan_produce(plan: Plan) -> None:
    """Charge produce requests; expect no response to acks=0."""
    acks = place(ProduceRequest, plan.version, "acks")
    if acks is None:
        raise AssertionError("every produce request has acks")
    flexible = plan.flexible_request

    def admit(caller: Caller, data: bytearray, frame: int, end: int, complete: bool) -> Admission | Wait:
        payers = caller.identify(data, frame, end)
        if payers is None:
            return WAIT
        body = request_body(data, frame, end, flexible=flexible)
        if body == INCOMPLETE:
            return WAIT
        position = acks.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return WAIT
        produce, _fetch, shadow, _request = payers
        if produce is not None and produce.throttled_until_ms > caller.now_ms:
            caller.postpone(produce.throttled_until_ms)
            return LATER
        charged = produce is not None or (shadow is not None and shadow.produce is not None)
        admission = _PRODUCE[charged, acks.read(data, position) != 0]
        caller.remember(plan, data, frame, position + acks.size, admission)
        return admission

    plan.admit = admit
    plan.on_arrival += (_charge_produce,)


def plan_fetch(plan: Plan) -> None:
    """Charge fetch responses, and cap what a fetch may ask for (KAFKA-9677)."""
    follows = claims(plan.version, flexible=plan.flexible_request)
    _plan_consumer(plan, place(FetchRequest, plan.version, "max_bytes"), follows)


def plan_share_fetch(plan: Plan) -> None:
    """A share consumer's fetch (KIP-932) has the fetch quota and its cap too."""
    _plan_consumer(plan, place(ShareFetchRequest, plan.version, "max_bytes"), None)


def _plan_consumer(plan: Plan, max_bytes: Place | None, follows: Claims | None) -> None:
    def admit(caller: Caller, data: bytearray, frame: int, end: int, complete: bool) -> Admission | Wait:
        payers = caller.identify(data, frame, end)
        if payers is None:
            return WAIT
        _produce, budget, shadow, _request = payers
        if follows is not None and caller.is_broker:
            follower = _follower(follows, data, frame, end, complete)
            if follower is None:
                return WAIT
            if follower:
                return EXEMPT
        if budget is None:
            admission = PASS if shadow is None or shadow.fetch is None else CHARGED
            caller.remember(plan, data, frame, client_id_end(data, frame, end), admission)
            return admission
        if budget.throttled_until_ms > caller.now_ms:
            caller.postpone(budget.throttled_until_ms)
            return LATER
        if max_bytes is not None:
            body = request_body(data, frame, end, flexible=plan.flexible_request)
            if body == INCOMPLETE:
                return WAIT
            position = _located(max_bytes, data, body, end, complete)
            if position < 0:
                return _NOT_LOCATED[position]
            if max_bytes.read(data, position) > budget.fetch_max_bytes:
                max_bytes.write(data, position, budget.fetch_max_bytes)
            else:
                caller.remember(plan, data, frame, position + max_bytes.size, CHARGED_ALONE, budget=budget)
        return CHARGED_ALONE

    plan.admit = admit
    plan.on_response += (_charge_fetch_flexible if plan.flexible_response else _charge_fetch,)


def _located(wanted: Place, data: bytearray, body: int, end: int, complete: bool) -> int:
    """The field's position; INCOMPLETE, or UNREADABLE."""
    try:
        return wanted.locate(data, body, end, complete)
    except ProtocolError:
        return UNREADABLE


def _follower(follows: Claims, data: bytearray, frame: int, end: int, complete: bool) -> bool | None:
    """As `follows`; a fetch that cannot be read is a consumer's."""
    try:
        return follows(data, frame, end, complete)
    except ProtocolError:
        return False


def _charge_produce(payers: Payers, length: int, now_ms: int) -> int:
    """A produce request costs its frame length."""
    budget, _fetch, shadow, _request = payers
    if shadow is not None and shadow.produce is not None:
        shadow.produce.charge(length, now_ms)
    return 0 if budget is None else budget.charge(length, now_ms)


def _charge_fetch(payers: Payers, length: int, now_ms: int) -> int:
    """A fetch response costs its body plus 4, which is its frame length."""
    _produce, budget, shadow, _request = payers
    if shadow is not None and shadow.fetch is not None:
        shadow.fetch.charge(length, now_ms)
    return 0 if budget is None else budget.charge(length, now_ms)


def _charge_fetch_flexible(payers: Payers, length: int, now_ms: int) -> int:
    """A flexible header is one byte longer than that 4."""
    return _charge_fetch(payers, length - 1, now_ms)
