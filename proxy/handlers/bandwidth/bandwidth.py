"""Bandwidth quotas on produce and fetch (KIP-13, KIP-124, KIP-219).

Produce is charged by the request's frame length when the request has arrived, as at a broker, so frames
behind it wait for the throttle. A fetch is charged when its response begins to arrive; until then the
client's next requests wait. A broker, too, handles one request of a connection at a time. Otherwise a client
that pipelines fetches would get all responses before its first throttle.

The first fetch of a connection whose client is over its quota gets the throttle time and no records, as from
a broker. The request still goes to the broker, whose fetch session must learn of changed partitions, but it
is changed to ask for as few bytes as possible. A response also loses its records if other connections of the
client have exceeded the quota since the request. From then on the connection stands in line: it waits as it
was told, and its next fetch brings records whatever the others have fetched meanwhile: see
`Budget.charge_in_turn`.

A share fetch acquires its records, so its response is always delivered. While the client is over its quota,
Weir asks for 0 records, and brokers then acquire none (`SharePartition.acquire`). Rejected: holding the
request, because acknowledgements in it, and behind it, would wait while the locks on their records expire.
For the same reason a share fetch is told only `SHARE_THROTTLE_MS_MAX`; the client then asks again.
Fetches that are under way count as well: see `Budget.share_fetch_max_bytes`.

The first produce request of a connection may be held, for a limited time, because of throttles that other
connections of its client have caused: reconnecting does not avoid a quota. Later requests are throttled only
by their own connection's charges, as at a broker.

Shadow quotas are charged too, but delay and change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, client_id_end, request_body
from weir.protocol.messages import FetchRequest, ProduceRequest, ShareFetchRequest
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset
from weir.protocol.scanning.least_fetch import AskLeast, ask_least
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Forward, Hold, Wait
from weir.proxy.handlers.plan import Context, Plan, Removal
from weir.quotas import ClientLedger

if TYPE_CHECKING:
    from weir.quotas.limiters.chain import AnyBudget

CHARGED = Forward(charged=True)
CHARGED_SERIAL = Forward(charged=True, serial=True)
CHARGED_UNREAD = Forward(charged=True, serial=True, unread=True)
CHARGED_UNANSWERED = Forward(charged=True, answered=False)
UNANSWERED = Forward(answered=False)
UNREADABLE = -2
SHARE_THROTTLE_MS_MAX: Final = 5_000
"""Longest throttle time (ms) of a share fetch. A client that waits longer could not acknowledge before its
acquired records are delivered to others: brokers lock them for 30 s by default, and groups may
choose 15 s (`group.share.min.record.lock.duration.ms`). Processing the records takes a part of that time.
"""
NEVER_MS: Final = 1 << 62
"""Time (ms) that does not come."""
_NOT_LOCATED: dict[int, Decision | Wait] = {INCOMPLETE: WAIT, UNREADABLE: CHARGED_UNREAD}
_PRODUCE = {
    (False, True): FORWARD,
    (False, False): UNANSWERED,
    (True, True): CHARGED,
    (True, False): CHARGED_UNANSWERED,
}
"""Decision about a produce request, by two facts: True if a quota or shadow quota on produce applies to the
client, and True if the broker will send a response (False for acks=0).
"""


class FirstProduce:
    """State of a connection: the principal whose first produce request was admitted. Until then the request
    may be held for throttles of byte rates that other connections of its client have caused.
    """

    __slots__ = ("user",)

    def __init__(self) -> None:
        self.user = ""


class FetchTurns:
    """State of a connection: when it has its turn in the lines of its client and of topics."""

    __slots__ = ("from_ms",)

    def __init__(self) -> None:
        self.from_ms = NEVER_MS
        """Time (ms) from which the connection has its turn, because it has waited for the others: the end of
        the throttle that the latest fetch without records has met; `NEVER_MS` before. After a response that
        could not tell its throttle time, the end of that time.
        """


def plan_produce(plan: Plan) -> None:
    """Charge the bytes of produce requests. Hold a connection's first produce request if its client is over
    the quota. With acks=0 the broker sends no response.
    """
    acks = field_offset(ProduceRequest, plan.version, "acks")
    if acks is None:
        raise AssertionError("every produce request has acks")
    flexible = plan.flexible_request

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        ledger = context.client.identify(data, frame, end, context.now_ms)
        if ledger is None:
            return WAIT
        body = request_body(data, frame, end, flexible=flexible)
        if body == INCOMPLETE:
            return WAIT
        position = acks.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return WAIT
        first, user = context.state_of(FirstProduce), context.client.user
        if first.user != user:
            first.user = user
            hold_ms = _first_hold_ms(context, ledger)
            if hold_ms > 0:
                return Hold(hold_ms)
        value = acks.read(data, position)
        stop = position + acks.size
        context.client.cache_parse(plan, data, frame, stop, value)
        return _produced(context, value, data, stop)

    plan.admit, plan.decide = admit, _produced
    plan.on_arrival += (ClientLedger.charge_produce,)


def _produced(context: Context, acks: int, _data: bytearray, _stop: int) -> Forward:
    return _PRODUCE[context.client.ledger.charges_produce, acks != 0]


def plan_fetch(plan: Plan) -> None:
    """Charge the bytes of fetch responses, and limit `max_bytes` of fetch requests (KAFKA-9677)."""
    max_bytes, least = field_offset(FetchRequest, plan.version, "max_bytes"), ask_least(plan.version)
    behind_max_bytes = 0 if max_bytes is None else (max_bytes.fixed_offset or 0) + max_bytes.size

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        ledger = context.client.identify(data, frame, end, context.now_ms)
        if ledger is None:
            return WAIT
        budget = ledger.fetch
        if budget is None:
            return _unlimited(context, plan, data, frame, end)
        most = _most(context, budget)
        return capped(context, plan, least, max_bytes, most, data, frame, end, complete)

    def decide(context: Context, asked_bytes: int, data: bytearray, stop: int) -> Forward | None:
        ledger = context.client.ledger
        budget = ledger.fetch
        if budget is None:
            return CHARGED if ledger.charges_fetch else FORWARD
        if max_bytes is None:
            return None
        most = _most(context, budget)
        if not most:
            least(data, stop - behind_max_bytes, stop, True)
        elif asked_bytes > most:
            max_bytes.write(data, stop - max_bytes.size, most)
        return CHARGED_SERIAL

    plan.admit, plan.decide, plan.removal = admit, decide, Removal(_over, _tell)
    plan.on_response += (_charge_fetch_flexible if plan.flexible_response else ClientLedger.charge_fetch,)


def plan_share_fetch(plan: Plan) -> None:
    """Charge the bytes of a share consumer's fetches (KIP-932) to the fetch quota, and limit their
    `max_bytes`. Ask for no records while the client is over the quota, except in version 0 (an early access
    of Kafka 4.0), which cannot.
    """
    max_bytes = field_offset(ShareFetchRequest, plan.version, "max_bytes")
    max_records = field_offset(ShareFetchRequest, plan.version, "max_records")
    if max_bytes is None:
        raise AssertionError("every share fetch has max_bytes")

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        ledger = context.client.identify(data, frame, end, context.now_ms)
        if ledger is None:
            return WAIT
        budget = ledger.fetch
        if budget is None:
            return _unlimited(context, plan, data, frame, end)
        body = request_body(data, frame, end, flexible=plan.flexible_request)
        position = (
            body if body == INCOMPLETE else _located(max_records or max_bytes, data, body, end, complete)
        )
        if position < 0:
            return _NOT_LOCATED[position]
        if max_records is not None and budget.throttled_until_ms > context.now_ms:
            return acquire_nothing(max_records, data, position, budget.tell_rest(context.now_ms))
        position = max_bytes.locate(data, body, end, complete)
        most = budget.share_fetch_max_bytes(context.now_ms)
        if max_bytes.read(data, position) > most:
            max_bytes.write(data, position, most)
        return CHARGED_SERIAL

    plan.admit, plan.decide = admit, _share_fetched
    plan.on_arrival += (begin_share_fetch,)
    plan.on_response += (_charge_share_fetch,)
    plan.on_leave = _leave_share_fetch


def _unlimited(context: Context, plan: Plan, data: bytearray, frame: int, end: int) -> Forward:
    """Return the decision to forward the fetch of a client without an enforced fetch quota. If a quota in
    shadow mode applies, the response is charged to it.
    """
    context.client.cache_parse(plan, data, frame, client_id_end(data, frame, end))
    return CHARGED if context.client.ledger.charges_fetch else FORWARD


def _share_fetched(context: Context, _parsed: int, _data: bytearray, _stop: int) -> Forward:
    return CHARGED if context.client.ledger.charges_fetch else FORWARD


def _most(context: Context, budget: AnyBudget) -> int:
    """Return the number of bytes that a fetch may ask for now; 0 if it must bring no records."""
    now_ms = context.now_ms
    if budget.throttled_until_ms <= now_ms:
        return budget.fetch_max_bytes
    return budget.fetch_max_bytes_at(now_ms, in_line=context.state_of(FetchTurns).from_ms <= now_ms)


def capped(
    context: Context,
    plan: Plan,
    least: AskLeast,
    max_bytes: FieldOffset | None,
    most: int,
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
) -> Decision | Wait:
    """Limit the field `max_bytes` of a fetch to `most`, and return the decision to forward the fetch. If
    `most` is 0, have it ask for `least`, because Weir will remove the records from its response.
    """
    if max_bytes is None:
        return CHARGED_SERIAL if most else asked_least(plan, least, data, frame, end, complete)
    body = request_body(data, frame, end, flexible=plan.flexible_request)
    if body == INCOMPLETE:
        return WAIT
    position = body + (max_bytes.fixed_offset or 0)
    stop = position + max_bytes.size
    if stop > end:
        return _NOT_LOCATED[_located(max_bytes, data, body, end, complete)]
    asked_bytes = max_bytes.read(data, position)
    context.client.cache_parse(plan, data, frame, stop, asked_bytes)  # first, because the fields may change
    if not most:
        least(data, body, stop, True)
    elif asked_bytes > most:
        max_bytes.write(data, position, most)
    return CHARGED_SERIAL


def asked_least(
    plan: Plan, least: AskLeast, data: bytearray, frame: int, end: int, complete: bool
) -> Decision | Wait:
    """Change a fetch to ask for as few bytes as possible, because Weir will remove the records from its
    response. Return the decision to forward the fetch.
    """
    body = request_body(data, frame, end, flexible=plan.flexible_request)
    if body == INCOMPLETE:
        return WAIT
    try:
        return CHARGED_SERIAL if least(data, body, end, complete) else WAIT
    except ProtocolError:
        return CHARGED_UNREAD


def _over(context: Context, ledger: ClientLedger) -> int:
    budget, now_ms = ledger.fetch, context.now_ms
    if budget is None or budget.throttled_until_ms <= now_ms:
        return 0
    return budget.closed_until_ms(in_line=context.state_of(FetchTurns).from_ms <= now_ms)


def _tell(context: Context, ledger: ClientLedger) -> tuple[int, int, int]:
    budget, now_ms = ledger.fetch, context.now_ms
    rest_ms = 0 if budget is None else budget.tell_rest(now_ms)
    if rest_ms:
        context.state_of(FetchTurns).from_ms = now_ms + rest_ms
    return rest_ms, 0, 0


def _located(wanted: FieldOffset, data: bytearray, body: int, end: int, complete: bool) -> int:
    """Return the position of the field `wanted` in a request; INCOMPLETE if more bytes are needed, UNREADABLE
    if the bytes are malformed.
    """
    try:
        return wanted.locate(data, body, end, complete)
    except ProtocolError:
        return UNREADABLE


def _first_hold_ms(context: Context, ledger: ClientLedger) -> int:
    """Return the time (ms) for which to hold a connection's first produce request, because the client is over
    its produce quota; 0 for no hold.
    """
    budget = ledger.produce
    return 0 if budget is None else context.first_hold_ms(budget.throttled_until_ms)


def acquire_nothing(max_records: FieldOffset, data: bytearray, position: int, rest_ms: int) -> Forward:
    """Let the share fetch with `max_records` at `data[position]` ask for no records. Return the decision to
    forward it, and to tell the client the rest (ms) of its throttle, which `SHARE_THROTTLE_MS_MAX` limits.
    """
    max_records.write(data, position, 0)
    return Forward(serial=True, throttle_ms=min(rest_ms, SHARE_THROTTLE_MS_MAX))


def begin_share_fetch(ledger: ClientLedger, _length: int, _now_ms: int) -> int:
    """Count a share fetch that is forwarded now; charge nothing."""
    if ledger.fetch is not None:
        ledger.fetch.add_share_fetches(1)
    return 0


def _charge_share_fetch(ledger: ClientLedger, length: int, now_ms: int) -> int:
    """Charge the response of a share fetch. Return the throttle time (ms) for the response."""
    ledger.charge_share_fetch(length - 1, now_ms)
    budget = ledger.fetch
    if budget is None:  # only a quota in shadow mode
        return 0
    budget.add_share_fetches(-1)
    return min(budget.owe(length - 1, now_ms), SHARE_THROTTLE_MS_MAX)


def _leave_share_fetch(ledger: ClientLedger) -> None:
    if ledger.fetch is not None:
        ledger.fetch.add_share_fetches(-1)


def _charge_fetch_flexible(ledger: ClientLedger, length: int, now_ms: int) -> int:
    """Charge a fetch response whose header has tagged fields, without one byte of that header, which brokers
    do not charge either. Return the throttle time (ms).
    """
    return ledger.charge_fetch(length - 1, now_ms)
