"""The broker's half of a connection: it matches responses to requests, charges and rewrites them, and sets
the throttle times that they tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import (
    INCOMPLETE,
    LENGTH,
    LENGTH_BYTES,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    RESPONSE_LENGTH_MIN,
    skip_tags,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection import replies
from weir.proxy.connection.emptied import empty, finish_emptied
from weir.proxy.connection.in_flight import CHARGED, LOCAL, PLAIN, QUERY, SPARE, SPARE_MAX, RequestInFlight
from weir.proxy.connection.in_parts import end_parts, end_turn, measure, process_part
from weir.proxy.connection.reporting import growth, mute, report
from weir.proxy.connection.response_in_progress import BEGIN, BEGUN, EMPTYING, END, NEXT_OF_RESPONSE
from weir.proxy.connection.state import OPEN
from weir.proxy.connection.tokens import from_broker
from weir.proxy.connection.usage_counters import CONSUMER
from weir.proxy.handlers.decisions import WAIT, Wait
from weir.proxy.handlers.plan import IN_PARTS, RESPONSE_QUOTA, Plan, ResponseEdit

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

_unpack = RESPONSE_HEAD.unpack_from


def receive(connection: Connection, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:  # noqa: C901  # a call per branch costs each frame
    """Process `data[:end]`, bytes from the broker, and return the number of bytes consumed.

    `view` is a memoryview of `data`; the bytes to forward are put into the effects as slices of `view`.
    """
    # Long, because each frame passes through here, and a call costs more than most of these branches.
    # Rare frames have functions: those that arrive in parts, responses of Weir's own, refused frames.
    response = connection.response
    connection.now_ms = now_ms
    if connection.client.exchange is not None and connection.client.sends_sasl_tokens:
        return _receive_tokens(connection, view, data, end)
    in_flight = connection.in_flight
    longest, frames = connection.limits.response_bytes_max, connection.clock.frames_max
    start = position = 0
    if connection.broker_end.rest_bytes:
        start = position = _finish_response(connection, data, view, end)
        if connection.broker_turn_over:
            return position
    # At `start` begin the bytes that were decided about and are not in the effects yet: responses that
    # need no change leave as one slice.
    while end - position >= RESPONSE_HEAD_BYTES and connection.broker_end.held_until_ms <= now_ms:
        # Weir's own replies go out in the order of the requests, so those that are next go out here.
        if in_flight and in_flight[0].state == LOCAL:
            if position > start:
                connection.effects.to_client.append(view[start:position])
                start = position
            replies.send_local(connection)
        length, correlation_id = _unpack(data, position)
        fits = RESPONSE_LENGTH_MIN <= length <= longest
        if not (fits and in_flight and in_flight[0].correlation_id == correlation_id):
            _refuse_response(connection, length, correlation_id, fits)
            break
        record = in_flight[0]
        stop = position + LENGTH_BYTES + length
        if record.state != PLAIN or record.plan.rewrite is not None:
            # Only these cost time, so only these count for the turn.
            if frames == 0:
                end_turn(connection)
                break
            frames -= 1
            complete = stop <= end
            available = stop if complete else end
            if record.state == QUERY and complete:  # the query takes it, and not the client
                if position > start:
                    connection.effects.to_client.append(view[start:position])
                    start = position
                if not _answer_query(connection, record, data, position, stop):
                    break
                start = position = stop
                continue
            edit: ResponseEdit | bytearray | Wait | None = WAIT
            if record.state != QUERY:
                edit = _process(connection, record, data, position, available, length, complete)
            if edit is not None:
                if isinstance(edit, ResponseEdit):
                    LENGTH.pack_into(data, position, length + growth(connection, edit))
                    connection.effects.to_client.extend((view[start : edit.start], edit.replacement))
                    start = edit.stop
                elif isinstance(edit, bytearray):  # a frame instead of the broker's
                    if position > start:
                        connection.effects.to_client.append(view[start:position])
                    connection.effects.to_client.append(memoryview(edit))
                    start = stop
                elif response.state == EMPTYING:
                    # Nothing is sent before its end, so its request stays in the queue.
                    if position > start:
                        connection.effects.to_client.append(view[start:position])
                    start = position = stop - connection.broker_end.rest_bytes
                    if stop == position:
                        finish_emptied(connection)
                    if position < available:  # the turn is over
                        break
                    continue
                else:
                    # A response that must be complete grows in a buffer of its own: not without a bound.
                    waits = complete or connection.broker_turn_over
                    if not waits and _fills_buffer(connection, position, end):
                        _check_kept(connection, length)
                    break
            if connection.broker_end.rest_bytes:  # the turn may have no time for all elements
                end = stop - connection.broker_end.rest_bytes
            if stop <= end:
                response.state = NEXT_OF_RESPONSE[response.state][END]
            response.report_ms = 0
        in_flight.popleft()
        if record.state <= CHARGED and len(SPARE) < SPARE_MAX:
            SPARE.append(record)
        if stop > end:
            connection.broker_end.rest_bytes = stop - end
            response.begin_rest()
            position = end
            break
        position = stop
    if position > start:
        connection.effects.to_client.append(view[start:position])
    if not connection.broker_end.rest_bytes and (connection.state != OPEN or in_flight):
        connection.answered()
    return position


def _receive_tokens(connection: Connection, view: memoryview, data: bytearray, end: int) -> int:
    """Process bytes while the broker sends bare SASL tokens; return the number of bytes consumed."""
    position = from_broker(connection, data, end)
    if position:
        connection.effects.to_client.append(view[:position])
        connection.answered()
    if position < end and not connection.client.sends_sasl_tokens:
        connection.effects.change()
    return position


def _finish_response(connection: Connection, data: bytearray, view: memoryview, end: int) -> int:
    """Forward the next bytes of a response that arrives in parts. At its end, also send Weir's
    own replies that are next in order. Return the position behind the response's bytes.
    """
    taken = min(connection.broker_end.rest_bytes, end)
    try:
        taken = process_part(connection, data, 0, taken)
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return end
    connection.broker_end.rest_bytes -= taken
    if connection.response.state == EMPTYING:
        if not connection.broker_end.rest_bytes:
            finish_emptied(connection)
        return taken
    connection.effects.to_client.append(view[:taken])
    if not connection.broker_end.rest_bytes:
        end_parts(connection)
        connection.response.end()
    return taken


def _begin_parts(
    connection: Connection, plan: Plan, data: bytearray, body: int, end: int, body_bytes: int, complete: bool
) -> ResponseEdit | Wait | None:
    """Process the first part of a response, `data[body:end]`, as many elements as the turn allows. Leave
    the others for later turns. Return the edit that rewrites the response; WAIT to be called again.
    """
    response = connection.response
    edit: ResponseEdit | Wait | None = None
    if plan.rewrite_stream is not None:
        response.rewriter = plan.rewrite_stream(body_bytes)
    ready_to = process_part(connection, data, body, end)
    if plan.rewrite is not None and plan.rewrite_stream is None:
        # The edit may replace bytes anywhere in this part, so all of the part is counted before.
        response.counted_bytes = ready_to - body
        if ready_to < end:
            return WAIT
        edit = plan.rewrite(connection, data, body, end, complete)
        if edit is WAIT:
            return _wait(connection, complete)
        response.counted_bytes = 0
    connection.broker_end.rest_bytes = body + body_bytes - ready_to
    if complete and ready_to == end:
        end_parts(connection)
    return edit


def _process(  # noqa: C901  # a call per branch costs each charged response
    connection: Connection,
    record: RequestInFlight,
    data: bytearray,
    frame: int,
    end: int,
    length: int,
    complete: bool,
) -> ResponseEdit | bytearray | Wait | None:
    """Charge a response, set its throttle time, and return the edit that rewrites the response. Return
    None if the response needs no edit; the frame to send instead if its records were removed; WAIT if the
    response is malformed, held or lacks bytes, or if its records are being removed in parts (EMPTYING).

    `data[frame:end]` is the part of the response that has arrived, `complete` is True if this is the
    whole response, and `length` is its frame length (bytes). `record` is the request that the response
    answers. After WAIT, this is called again with the same bytes and any new ones; the response is
    charged only once.
    """
    plan, response, ledger = record.plan, connection.response, record.ledger
    now_ms = connection.now_ms
    try:
        body = frame + RESPONSE_HEAD_BYTES
        if plan.flexible_response:
            if body < end and data[body] == 0:  # nearly always: no tagged fields, and no call for them
                body += 1
            elif (body := skip_tags(data, body, end, frame)) == INCOMPLETE:
                return _wait(connection, complete)
        if response.state == BEGUN:
            if record.until_ms - now_ms > response.report_ms:  # another request has exceeded a quota
                response.report_ms = record.until_ms - now_ms
        elif record.state == CHARGED:
            if ledger is not None:
                removal = plan.counted_removal if ledger.counts_records else plan.removal
                if removal is not None and removal.over(connection, ledger) > now_ms:
                    stop = frame + LENGTH_BYTES + length
                    return empty(connection, record, removal, data, frame, body, end, stop)
            if not _begin(connection, record, data, body, end, length, complete):
                return WAIT
        if response.report_ms > 0 and not report(connection, plan, data, body, end, complete):
            if complete or not _fills_buffer(connection, frame, end):
                return _wait(connection, complete)
            connection.tell_next(now_ms + response.report_ms, after=record)
        edit: ResponseEdit | Wait | None = None
        if response.byte_counter is not None:
            edit = IN_PARTS
        elif plan.rewrite is not None:
            if complete or plan.rewrite_stream is None or not _is_streamed(connection, length):
                edit = plan.rewrite(connection, data, body, end, complete)
                if edit is WAIT:
                    return (
                        WAIT if connection.broker_end.held_until_ms > now_ms else _wait(connection, complete)
                    )
            else:
                edit = IN_PARTS
        if edit is IN_PARTS:
            body_bytes = LENGTH_BYTES + length - (body - frame)
            edit = _begin_parts(connection, plan, data, body, end, body_bytes, complete)
            if edit is WAIT:
                return WAIT
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return WAIT
    return edit


def _begin(
    connection: Connection,
    record: RequestInFlight,
    data: bytearray,
    body: int,
    end: int,
    length: int,
    complete: bool,
) -> bool:
    """Charge the request's time and the response's bytes, and set the throttle time that the response
    must tell. Return False, without any charge, if a response that is counted by topic lacks bytes.
    """
    plan, response, ledger = record.plan, connection.response, record.ledger
    now_ms = connection.now_ms
    byte_counter = record.byte_counter
    if byte_counter is None and ledger is not None and ledger.counts_records:
        byte_counter = None if plan.byte_counter is None else plan.byte_counter(connection, ledger)
    if byte_counter is not None and not complete and not _is_streamed(connection, length):
        return False
    response.state = NEXT_OF_RESPONSE[response.state][BEGIN]
    if record.cost_us or record.time_ledger is not None or record.usage_counters is not None:
        record.begin_response(connection, length)
    until_ms = record.until_ms
    if byte_counter is not None:
        record.byte_counter = None
        until_ms = max(until_ms, measure(connection, byte_counter, data, body, end, complete))
    if ledger is not None:
        for charge in plan.on_response:
            throttle_ms = charge(ledger, length, now_ms)
            if throttle_ms > 0:
                until_ms = max(until_ms, mute(connection, RESPONSE_QUOTA, throttle_ms, CONSUMER))
        record.ledger = None
    if until_ms > now_ms:
        response.report_ms = until_ms - now_ms
    return True


def _answer_query(
    connection: Connection, record: RequestInFlight, data: bytearray, frame: int, end: int
) -> bool:
    """Pass the response `data[frame:end]` to a query. Return False if the response is malformed."""
    try:
        replies.answer_query(connection, record, data, frame, end)
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return False
    return True


def _wait(connection: Connection, complete: bool) -> Wait:
    if complete:
        connection.violate(CloseReason.RESPONSE_MALFORMED, "the response ends within a field")
    return WAIT


def _is_streamed(connection: Connection, length: int) -> bool:
    """Return True if a response of this frame length (bytes) is forwarded before its end has arrived."""
    return LENGTH_BYTES + length > connection.limits.stream_above_bytes


def _fills_buffer(connection: Connection, frame: int, end: int) -> bool:
    """Return True if the part of a response that has arrived (from `frame` to `end`) fills the buffer."""
    return end - frame >= connection.limits.stream_above_bytes


def _check_kept(connection: Connection, length: int) -> None:
    """Close the connection if a response of this frame length (bytes) is too long to be kept until all of
    it has arrived. A response that waits for listeners is exempt meanwhile: only its first part is kept.
    """
    longest = connection.limits.kept_response_bytes_max
    if length > longest and connection.broker_end.held_until_ms <= connection.now_ms:
        detail = f"a response of {length} bytes that Weir must read whole, limit {longest}"
        connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, detail)


def _refuse_response(connection: Connection, length: int, correlation_id: int, fits: bool) -> None:
    if not fits:
        connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, f"a response of {length} bytes")
        return
    expected = connection.in_flight[0].correlation_id if connection.in_flight else "none"
    connection.violate(
        CloseReason.RESPONSE_UNEXPECTED,
        f"a response with correlation id {correlation_id}, expected {expected}",
    )
