"""The client's half of a connection: it decides which requests go to the broker and when, and charges
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey, versions
from weir.protocol.errors import OversizedError, ProtocolError
from weir.protocol.framing import (
    INCOMPLETE,
    LENGTH_BYTES,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    REQUEST_LENGTH_MIN,
    request_body,
)
from weir.protocol.messages import ProduceRequest
from weir.protocol.scanning.field_offsets import field_offset
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection import refusals, replies
from weir.proxy.connection.arriving import begin_request, finish_arrival, finish_request, note_unread
from weir.proxy.connection.charges import count_exempt, count_request
from weir.proxy.connection.client import TIMED_IN_FLIGHT_MAX
from weir.proxy.connection.effects import FIRST_BYTES
from weir.proxy.connection.in_flight import (
    CHARGED,
    PLAIN,
    SPARE,
    RequestInFlight,
)
from weir.proxy.connection.state import (
    DRAINING,
    NEXT,
    OPEN,
    QUERYING,
    RELEASE,
    SERIAL,
    THROTTLED,
)
from weir.proxy.connection.tokens import from_client
from weir.proxy.connection.usage_counters import UsageCounters
from weir.proxy.handlers.broker_query import RunningQuery
from weir.proxy.handlers.decisions import FORWARD, Decision, Forward, Hold, Query, Reply, Wait
from weir.proxy.handlers.plan import ARRIVAL_QUOTA, Plan
from weir.proxy.handlers.request_time.request_features import known_us
from weir.proxy.handlers.sasl.authentication import SASL_APIS
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

_unpack = REQUEST_HEAD.unpack_from

LOOK_BYTES: Final = 64 * 1024
"""Number of bytes of a request that must arrive before Weir estimates the request's cost, so that sending
small packets does not make a request cheaper.
"""


REPLY_FRAMES: Final = 8
"""Number of frames as which one reply of Weir's own counts. A turn (pass of the reactor's loop) processes at
most `Clock.frames_max` frames of a connection's client.
"""
LOOK_UP_FRAMES: Final = 8
"""Number of further frames as which a request counts that changes the client-id. New client-ids make new
limiters: 32 of them take 3 to 8 ms.
"""


def receive(connection: Connection, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:  # noqa: C901  # a call per branch costs each frame
    """Process `data[:end]`, bytes from the client, and return the number of bytes consumed.

    `view` is a memoryview of `data`; the bytes to forward are put into the effects as slices of `view`.
    """
    # Long, because each frame passes through here, and a call costs more than most of these branches.
    # Rare frames have functions: those that arrive in parts, responses of Weir's own, refused frames.
    connection.now_ms = now_ms
    client, plans = connection.client, connection.plans
    in_flight = connection.in_flight
    limits = connection.limits
    longest, most = limits.frame_bytes_max, limits.in_flight_max
    timed = client.quotas.timed or client.usage is not None
    ledger = client.ledger
    draining, near = connection.state == DRAINING, False
    if connection.state == THROTTLED and connection.throttled_until_ms <= now_ms:
        connection.state = NEXT[THROTTLED][RELEASE]
    start = position = 0
    if connection.client_end.rest_bytes:
        position = finish_request(connection, data, end)
        if position < end and connection.client_end.rest_bytes:  # held, or the turn is over
            if position:
                connection.effects.to_broker.append(view[:position])
            return position
    # The bounds of the client's requests in flight, and of the frames in a turn, are one number here, because
    # each request is compared with it.
    time_ledger = client.time_ledger
    if time_ledger is not None and time_ledger.request is not None and most > TIMED_IN_FLIGHT_MAX:
        most = TIMED_IN_FLIGHT_MAX  # `Client.in_flight_max` without its call
    in_turn = len(in_flight) + connection.clock.frames_max
    may_go = (connection.state == OPEN and len(in_flight) < most) or connection.may_take(now_ms)
    if in_turn < most:
        most = in_turn
    if client.exchange is not None and client.exchange.in_progress:
        position = from_client(connection, data, position, end)
        may_go = not client.sends_sasl_tokens and connection.may_take(now_ms)
    while may_go and end - position >= REQUEST_HEAD_BYTES:
        length, api_key, version, correlation_id = _unpack(data, position)
        if not REQUEST_LENGTH_MIN <= length <= longest:
            refusals.refuse_length(connection, data, position, length)
            break
        plan = plans.get((api_key, version)) or plans.make(api_key, version)
        stop = position + LENGTH_BYTES + length
        record = SPARE.pop() if SPARE else RequestInFlight(plan)
        record.plan, record.correlation_id = plan, correlation_id
        record.state, record.until_ms, record.ledger = PLAIN, 0, None
        decision: Decision = FORWARD
        if timed or plan.admit is not None:
            complete = stop <= end
            decided = _decide(connection, record, data, position, stop if complete else end, length, timed)
            if decided is None:
                SPARE.append(record)
                refusals.check_before_login(connection, length)
                break
            decision = decided
            if client.ledger is not ledger:
                ledger = client.ledger
                most -= LOOK_UP_FRAMES
        if decision is not FORWARD and not isinstance(decision, Forward):
            # A query's own request must leave behind the requests before it.
            if position > start:
                connection.effects.to_broker.append(view[start:position])
            start = stop = _respond(connection, record, decision, data, position, min(stop, end))
            most -= REPLY_FRAMES
            may_go = connection.may_take(now_ms) and len(in_flight) < most
            position = stop
            continue
        if timed:
            record.state, record.arrived_us = CHARGED, connection.clock.now_us
            near = False
            if record.time_ledger is not None:
                budget = record.time_ledger.request
                near = budget is not None and budget.near
        if stop > end or decision.counted_to:
            position = begin_request(connection, record, decision, length, stop, end)
            break
        # Most requests: nothing to charge at arrival, and no reason to wait for the response.
        if decision is FORWARD and not (near or draining):
            plan.requests += 1
            in_flight.append(record)
            may_go = len(in_flight) < most
        else:
            serial = decision.serial or near
            if decision.frame is not None:
                if position > start:
                    connection.effects.to_broker.append(view[start:position])
                connection.effects.to_broker.append(decision.frame)
                start = stop
            finish_arrival(connection, record, decision, length, serial=serial)
            if not decision.answered:  # not in flight, but it takes its part of the turn
                most -= 1
            may_go = not serial and len(in_flight) < most
            may_go = may_go and (connection.state == OPEN or connection.may_take(now_ms))
        position = stop
    # The head of a request that is too short never arrives: look at the length alone.
    if may_go and LENGTH_BYTES <= end - position < REQUEST_HEAD_BYTES:
        refusals.check_length(connection, data, position)
    if not may_go and (position < end or not SERIAL <= connection.state <= QUERYING):
        # If the client may send, only the end of the turn stops it.
        if position < end and not client.sends_sasl_tokens and connection.may_take(now_ms):
            connection.client_end.turn = connection.clock.turn
        connection.effects.changed = True
    elif draining:  # these may have been the last bytes to wait for
        connection.effects.changed = True
    elif not may_go:  # until the response
        connection.effects.room_bytes = 0  # the relay asks (`wake`) before it reads again
    if position > start:
        connection.effects.to_broker.append(view[start:position])
    return position


# Deciding


def _decide(  # noqa: C901  # a call per branch costs each timed frame
    connection: Connection,
    record: RequestInFlight,
    data: bytearray,
    frame: int,
    end: int,
    length: int,
    timed: bool,
) -> Decision | None:
    """Return the decision about the request in `data[frame:end]` (forward it, reply, query the broker),
    and set the fields of its cost in `record`; None if the request must wait. `timed` is True if request
    time is charged, or usage is recorded, on this connection.
    """
    plan = record.plan
    client = connection.client
    quotas = client.quotas
    cache, complete = client.parse_cache, end - frame == LENGTH_BYTES + length
    head_end = frame + REQUEST_HEAD_BYTES + len(cache.head)
    decision: Decision | None = None
    # Recognized by its first bytes: what was parsed of the last such request holds for this one, too.
    recognized = (
        cache.plan is plan
        and data.startswith(cache.head, frame + REQUEST_HEAD_BYTES)
        and head_end <= end
        and cache.generation == quotas.generation
        and plan.decide is not None
        and (client.first_request_seen or not timed)
        and (plan.needs_look is None or not plan.needs_look(connection, data, head_end, end, complete))
    )
    if timed:
        if not (recognized or _is_identified(connection, plan, data, frame, end, complete)):
            return None
        if not complete and _needs_more_for_cost(connection, plan, data, frame, end):
            return None
    if recognized and plan.decide is not None:  # last, because it may change the request
        decision = plan.decide(connection, cache.parsed, data, head_end)
    if decision is None:
        decision = FORWARD if plan.admit is None else _admit(connection, plan, data, frame, end, complete)
        if decision is None:
            return None
    if not timed:
        return decision
    # The cost is charged when the response begins, because it depends on the response's length, too.
    now_us, cost, ledger = connection.clock.now_us, plan.cost, client.time_ledger
    gap_us, quotas.forwarded_us = now_us - quotas.forwarded_us, now_us
    exempt = plan.between_brokers and client.is_broker
    if decision is not FORWARD and isinstance(decision, Forward):
        exempt = exempt or decision.exempt or not decision.answered
        if decision.sasl:  # brokers answer it in their network layer, and count it nowhere
            cost = None
    if cost is not None and (exempt or ledger is not None):
        us = cost.us + cost.us_per_byte * length
        if gap_us >= cost.cold_from_us:
            us += cost.cold_us(gap_us)
        if plan.extra_us is not None:
            us += plan.extra_us(connection, record, data, frame, end)
            if record.unconfirmed_us and (exempt or not isinstance(decision, Forward)):
                record.unconfirmed_us = 0.0  # no response of the broker confirms it
        if isinstance(decision, Forward) and not decision.answered:
            count_exempt(connection, plan, us, 0)
        else:
            record.cost_us = us
            if not exempt and ledger is not None:
                record.time_ledger = ledger
    if client.usage is not None:
        _count(connection, record, decision, data, frame, length, complete)
    return decision


def _count(
    connection: Connection,
    record: RequestInFlight,
    decision: Decision,
    data: bytearray,
    frame: int,
    length: int,
    complete: bool,
) -> None:
    """Set the usage counters for the request that is being decided about, and count the request if all of
    it has arrived.
    """
    plan, usage = record.plan, connection.client.usage
    assert usage is not None
    usage_counters = usage.usage_counters(plan.group, plan.api_key, plan.version, data, frame)
    record.usage_counters = usage_counters
    if complete and isinstance(decision, Forward) and not decision.counted_to:
        count_request(connection, plan, usage_counters, length, answered=decision.answered)


def _needs_more_for_cost(connection: Connection, plan: Plan, data: bytearray, frame: int, end: int) -> bool:
    """Return True if Weir must wait for more bytes of the request before it can estimate the request's
    cost.
    """
    if (
        plan.extra_us is None
        or connection.client.time_ledger is None
        or known_us(connection, plan, data, frame, end) >= 0.0
    ):
        connection.client_end.first_bytes = FIRST_BYTES
        return False
    connection.client_end.first_bytes = LOOK_BYTES
    return end - frame < min(LOOK_BYTES, connection.limits.stream_above_bytes)


def _is_identified(
    connection: Connection, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> bool:
    """Look up the quotas of the client that sent the request. Return False if the request must wait: for
    more bytes, or because a throttle of the client holds the first request of a connection.
    """
    if not plan.has_client_id:
        connection.client.identify_nameless(connection.now_ms)
        return True
    try:
        ledger = connection.client.identify(data, frame, end, connection.now_ms)
        if ledger is not None and connection.client.first_request_seen:
            return True
        hold_ms = INCOMPLETE if ledger is None else _first_hold_ms(connection, plan, data, frame, end)
    except ProtocolError as error:
        refusals.close_malformed(connection, str(error))
        return False
    if hold_ms == INCOMPLETE:
        refusals.check_cut(connection, plan, data, frame, end, complete)
    elif hold_ms > 0:
        connection.hold_first(hold_ms, QuotaKey.REQUEST_PERCENTAGE)
    return hold_ms == 0


def _first_hold_ms(connection: Connection, plan: Plan, data: bytearray, frame: int, end: int) -> int:
    """Return the time (ms) for which to hold the connection's first request because the client is
    throttled for request time; INCOMPLETE if more bytes are needed.

    Each connection is held only once, because other connections of the client could cause throttles
    without end. Brokers are not held, because most of their requests are exempt from request quotas.
    Produce with acks=0 is exempt too, and is not held.
    """
    client = connection.client
    if plan.api_key in SASL_APIS:
        return 0
    ledger = client.time_ledger
    budget = None if ledger is None else ledger.request
    hold_ms = 0 if budget is None else connection.first_hold_ms(budget.throttled_until_ms)
    if hold_ms > 0 and not client.is_broker:
        acks = _acks(plan, data, frame, end)
        if acks is None or acks == 0:
            return INCOMPLETE if acks is None else 0
    client.first_request_seen = True
    return 0 if client.is_broker else hold_ms


def _admit(
    connection: Connection, plan: Plan, data: bytearray, frame: int, end: int, complete: bool
) -> Decision | None:
    """Return the decision of `Plan.admit` about the request; None if the request must wait.

    If the header or a field that decides about forwarding is malformed, the connection closes: no broker
    could read the request either.
    """
    assert plan.admit is not None
    try:
        decision = plan.admit(connection, data, frame, end, complete)
    except OversizedError as oversized:
        connection.violate(CloseReason.REQUEST_TOO_LARGE, f"{oversized}: split the request")
        return None
    except ProtocolError as error:
        refusals.close_malformed(connection, str(error))
        return None
    connection.decoded = None  # the result of a query was needed for this decision only
    if isinstance(decision, Wait):
        refusals.check_cut(connection, plan, data, frame, end, complete)
        return None
    if isinstance(decision, Hold):
        if decision.first:
            connection.hold_first(decision.hold_ms, ARRIVAL_QUOTA)
        else:
            connection.pause(decision.hold_ms)
        return None
    if isinstance(decision, Forward) and decision.unread:
        note_unread(connection, plan)
    return decision


def _respond(
    connection: Connection,
    record: RequestInFlight,
    decision: Decision,
    data: bytearray,
    frame: int,
    stop: int,
) -> int:
    """Carry out a decision other than forwarding (Reply or Query) for the request
    `data[frame:stop]`, whose cost is in `record`. Return the position up to which bytes are consumed:
    `stop`, or `frame` if Weir decides about the request again after the query.
    """
    plan = record.plan
    again = isinstance(decision, Query) and decision.again
    if record.usage_counters is not None:
        _count_not_forwarded(connection, plan, data, frame, record.usage_counters, again=again)
    if isinstance(decision, Query):
        replies.begin_query(connection, record, RunningQuery(decision.query, data, frame, stop))
    elif isinstance(decision, Reply):
        replies.reply(connection, record, decision.frame)
    if again:
        connection.effects.change()
        return frame
    plan.requests += 1
    return stop


def _count_not_forwarded(
    connection: Connection,
    plan: Plan,
    data: bytearray,
    frame: int,
    usage_counters: UsageCounters,
    *,
    again: bool,
) -> None:
    """Count, as usage, a request that Weir does not forward. With `again`, only keep the usage counters:
    Weir decides about the request again after a query, and counts it then.
    """
    usage = connection.client.usage
    if again and usage is not None:
        usage.again(usage_counters)
    else:
        count_request(connection, plan, usage_counters, _unpack(data, frame)[0], answered=True)


def _acks(plan: Plan, data: bytearray, frame: int, end: int) -> int | None:
    """Return the field `acks` of a produce request (0, 1 or -1); None if more bytes are needed; 1 for other
    requests and for malformed bodies.

    Raises ProtocolError if the request's header is malformed.
    """
    known = versions(plan.api_key)
    if plan.api_key != ApiKey.PRODUCE or known is None or plan.version not in known:
        return 1
    acks = field_offset(ProduceRequest, plan.version, "acks")
    body = request_body(data, frame, end, flexible=plan.flexible_request)
    try:
        position = INCOMPLETE if acks is None or body == INCOMPLETE else acks.locate(data, body, end, False)
    except ProtocolError:
        return 1
    return None if acks is None or position == INCOMPLETE else acks.read(data, position)
