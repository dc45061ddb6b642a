"""The broker's half of a connection: it matches responses to requests, charges and rewrites them, and sets
the throttle times that they tell.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
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
from weir.protocol.scanning.records_remover import whole_remover
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection import emptied, replies
from weir.proxy.connection.emptied import EmptiedResponse
from weir.proxy.connection.in_flight import CHARGED, LOCAL, PLAIN, QUERY, SPARE, SPARE_MAX, RequestInFlight
from weir.proxy.connection.response_in_progress import (
    BEGIN,
    BEGUN,
    EMPTY,
    EMPTYING,
    END,
    NEXT_OF_RESPONSE,
    PASSING,
)
from weir.proxy.connection.state import OPEN
from weir.proxy.connection.tokens import from_broker
from weir.proxy.connection.usage_counters import CONSUMER, OLD_READ, TOPIC
from weir.proxy.handlers.api_versions.api_versions import refused
from weir.proxy.handlers.decisions import WAIT, Wait
from weir.proxy.handlers.plan import (
    IN_PARTS,
    RESPONSE_QUOTA,
    ByteCounter,
    Plan,
    Removal,
    ResponseEdit,
    StreamRewrite,
)
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

_unpack = RESPONSE_HEAD.unpack_from
_API_VERSIONS: Final = ApiKey.API_VERSIONS.value
_THROTTLE_BYTES: Final = 4
"""Size (bytes) of the field `throttle_time_ms`."""


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
                _end_turn(connection)
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
                    LENGTH.pack_into(data, position, length + _growth(connection, edit))
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
                        _finish_emptied(connection)
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


# Responses without records


def _empty(
    connection: Connection,
    record: RequestInFlight,
    removal: Removal,
    data: bytearray,
    frame: int,
    body: int,
    end: int,
    stop: int,
) -> bytearray | Wait:
    """Remove the records from the part of a response that has arrived, `data[frame:end]`; the response ends
    at `stop`. Return the frame to send instead of a complete response; WAIT for a response whose other bytes
    are to come, or which has more elements than the turn allows. Raises ProtocolError if it is malformed.
    """
    plan, clock, response = record.plan, connection.clock, connection.response
    if end == stop:  # no scan that can pause
        elements_max, whole = clock.elements_left(), data[frame:body]
        left = whole_remover(plan.version)(data, body, end, elements_max, whole, emptied.KEPT_BYTES_MAX)
        clock.scanned += elements_max - left if left > 0 else elements_max
        if left >= 0:
            _finish_frame(connection, record, removal, whole, body - frame, None)
            return whole
    response.state = NEXT_OF_RESPONSE[response.state][EMPTY]
    response.rewriter = EmptiedResponse(plan, data[frame:body])
    connection.broker_end.rest_bytes = stop - end
    connection.broker_end.rest_bytes = stop - _process_part(connection, data, body, end)
    return WAIT


def _finish_emptied(connection: Connection) -> None:
    """Send the response whose records were removed in parts."""
    response, record = connection.response, connection.in_flight[0]
    rewriter, ledger = response.rewriter, record.ledger
    assert isinstance(rewriter, EmptiedResponse)
    assert ledger is not None
    removal = record.plan.counted_removal if ledger.counts_records else record.plan.removal
    assert removal is not None
    try:
        frame = rewriter.frame()
        _finish_frame(connection, record, removal, frame, rewriter.head_bytes, rewriter.mask)
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return
    response.end()
    connection.in_flight.popleft()
    if len(SPARE) < SPARE_MAX:
        SPARE.append(record)
    connection.effects.to_client.append(memoryview(frame))


def _finish_frame(
    connection: Connection,
    record: RequestInFlight,
    removal: Removal,
    frame: bytearray,
    body: int,
    mask: StreamRewrite | None,
) -> None:
    """Write the length, the throttle time and the addresses into a frame whose records were removed, and take
    no requests from the client for the throttle time. `mask` has masked the addresses already; None if not.
    Raises ProtocolError if a field is missing.

    The bytes are not charged: a broker charges such a response and takes the charge back.
    """
    plan, response, end, ledger = record.plan, connection.response, len(frame), record.ledger
    assert ledger is not None
    LENGTH.pack_into(frame, 0, end - LENGTH_BYTES)
    if record.cost_us or record.time_ledger is not None or record.usage_counters is not None:
        record.begin_response(connection, end - LENGTH_BYTES, charged=False)
    record.byte_counter = None
    until_ms = record.until_ms
    client_ms, topics_ms, old_ms = removal.tell(connection, ledger)
    if client_ms:
        until_ms = max(until_ms, _mute(connection, RESPONSE_QUOTA, client_ms, CONSUMER))
    if topics_ms:
        until_ms = max(until_ms, _mute(connection, RESPONSE_QUOTA, topics_ms, TOPIC))
    if old_ms:
        until_ms = max(until_ms, _mute(connection, QuotaKey.OLD_READ_BYTE_RATE, old_ms, OLD_READ))
    if removal.on_emptied is not None:
        removal.on_emptied(connection, frame, body, end)
    edit: ResponseEdit | Wait | None = None
    if until_ms > connection.now_ms:
        response.report_ms = until_ms - connection.now_ms
        if not _report(connection, plan, frame, body, end, True):
            edit = WAIT
    if edit is None and plan.rewrite is not None:
        edit = plan.rewrite(connection, frame, body, end, True)
    if isinstance(edit, ResponseEdit):
        LENGTH.pack_into(frame, 0, end - LENGTH_BYTES + _growth(connection, edit))
        frame[edit.start : edit.stop] = edit.replacement
    elif edit is IN_PARTS and mask is None and plan.rewrite_stream is not None:
        plan.rewrite_stream(end - body).feed(frame, body, end, sys.maxsize)
    elif edit is WAIT:
        raise ProtocolError("the response ends within a field")


# Responses that are forwarded in parts


def _finish_response(connection: Connection, data: bytearray, view: memoryview, end: int) -> int:
    """Forward the next bytes of a response that arrives in parts. At its end, also send Weir's
    own replies that are next in order. Return the position behind the response's bytes.
    """
    taken = min(connection.broker_end.rest_bytes, end)
    try:
        taken = _process_part(connection, data, 0, taken)
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return end
    connection.broker_end.rest_bytes -= taken
    if connection.response.state == EMPTYING:
        if not connection.broker_end.rest_bytes:
            _finish_emptied(connection)
        return taken
    connection.effects.to_client.append(view[:taken])
    if not connection.broker_end.rest_bytes:
        _end_parts(connection)
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
    ready_to = _process_part(connection, data, body, end)
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
        _end_parts(connection)
    return edit


def _process_part(connection: Connection, data: bytearray, start: int, stop: int) -> int:
    """Count and change the next bytes of a response's body, `data[start:stop]`, as many elements as the
    turn allows. Return the position behind the bytes that may be forwarded; if that is before `stop`, the
    turn is over. Raises ProtocolError if the response is malformed.
    """
    response, clock = connection.response, connection.clock
    byte_counter, rewriter = response.byte_counter, response.rewriter
    elements_max = clock.elements_left()  # before the counter feeds: both visit the same elements
    counted_to = ready_to = stop
    if byte_counter is not None:
        counted_to = ready_to = byte_counter.feed(data, start + response.counted_bytes, stop)
    if rewriter is not None:
        ready_to = rewriter.feed(data, start, counted_to, elements_max)
        clock.scanned += elements_max - rewriter.elements_left
    response.counted_bytes = counted_to - ready_to
    if ready_to < stop:
        _end_turn(connection)
    return ready_to


def _end_parts(connection: Connection) -> None:
    """End a response whose last part was processed."""
    if connection.response.byte_counter is not None:
        _end_measuring(connection, connection.response.byte_counter)


def passable_bytes(connection: Connection) -> int:
    """Return the number of bytes that come next and that nobody needs to see: the rest of a response that
    is being forwarded, or its next records, unless it is counted by topic.
    """
    response, rest_bytes = connection.response, connection.broker_end.rest_bytes
    if response.state == PASSING:
        return rest_bytes
    if response.byte_counter is not None or response.rewriter is None:
        return 0
    return min(response.rewriter.skippable_bytes, rest_bytes)


def passed(connection: Connection, count: int, now_ms: int) -> None:
    """Note that the next `count` bytes have been forwarded unseen; at most `passable_bytes`."""
    connection.now_ms = now_ms
    connection.broker_end.rest_bytes -= count
    if connection.response.rewriter is not None:
        connection.response.rewriter.skip(count)
    if not connection.broker_end.rest_bytes:
        connection.response.end()
        if connection.state != OPEN or connection.in_flight:
            connection.answered()


def _end_turn(connection: Connection) -> None:
    """Leave the other bytes that have arrived for the next turn of the reactor."""
    connection.end_turn(connection.broker_end)


def _end_measuring(connection: Connection, byte_counter: ByteCounter) -> None:
    """Charge the counted bytes of a response that was forwarded in parts and has ended.

    The head of the response was forwarded before the charge, so it cannot tell the throttle time of a
    topic rate. The response to the next fetch of the topic tells it.
    """
    connection.response.byte_counter = None
    byte_counter.charge(connection.now_ms, told=False)
    if connection.client.usage is not None:
        connection.client.usage.measured(under_way=False)


# One response


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
                    return _empty(connection, record, removal, data, frame, body, end, stop)
            if not _begin(connection, record, data, body, end, length, complete):
                return WAIT
        if response.report_ms > 0 and not _report(connection, plan, data, body, end, complete):
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
        until_ms = max(until_ms, _measure(connection, byte_counter, data, body, end, complete))
    if ledger is not None:
        for charge in plan.on_response:
            throttle_ms = charge(ledger, length, now_ms)
            if throttle_ms > 0:
                until_ms = max(until_ms, _mute(connection, RESPONSE_QUOTA, throttle_ms, CONSUMER))
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


def _measure(
    connection: Connection, byte_counter: ByteCounter, data: bytearray, body: int, end: int, complete: bool
) -> int:
    """Count the bytes of the current response: all of them now if the response is complete and the turn
    has time for its elements, else each part when it arrives, or in later turns. Return the time (ms)
    until which the throttle lasts, 0 for none.
    """
    counted_bytes = byte_counter.feed(data, body, end) - body if complete else 0
    if complete and counted_bytes == end - body:
        return _charge_measured(connection, byte_counter)
    connection.response.byte_counter, connection.response.counted_bytes = byte_counter, counted_bytes
    usage = connection.client.usage
    if usage is not None:
        usage.measured(under_way=True)
    return 0


def _charge_measured(connection: Connection, byte_counter: ByteCounter) -> int:
    """Charge the counted bytes; return the time (ms) until which the throttle lasts, 0 for none."""
    throttle_ms = byte_counter.charge(connection.now_ms)
    until_ms = 0
    if throttle_ms > 0:
        quota = byte_counter.quota
        until_ms = _mute(
            connection, quota, throttle_ms, OLD_READ if quota is QuotaKey.OLD_READ_BYTE_RATE else TOPIC
        )
    if connection.client.usage is not None:
        connection.client.usage.measured(under_way=False)
    return until_ms


def _mute(connection: Connection, quota: QuotaKey, throttle_ms: int, counted_as: int) -> int:
    """Take no requests from the client for `throttle_ms`, because the current response exceeds a quota.
    Record the throttle time as usage. Return the time (ms) at which the throttle ends.
    """
    until_ms = connection.mute(throttle_ms, quota)
    if connection.client.usage is not None:
        connection.client.usage.throttled(counted_as, until_ms - connection.now_ms)
    return until_ms


def _report(connection: Connection, plan: Plan, data: bytearray, body: int, end: int, complete: bool) -> bool:
    """Write Weir's throttle time into the response, unless the broker's throttle time there is longer. If
    the version has no field for it, have the client's next response tell the throttle time.

    Return False if the bytes of the field have not arrived yet.
    """
    if plan.throttle is None:
        connection.tell_next(connection.now_ms + connection.response.report_ms)
        return True
    if plan.api_key == _API_VERSIONS and refused(data, body, end):
        return True  # brokers refuse a version of ApiVersions in the layout of version 0
    throttle, offset = plan.throttle, plan.throttle.fixed_offset
    if offset is not None and body + offset + _THROTTLE_BYTES <= end:  # `locate` without its call
        position = body + offset
    elif offset is None and not complete:
        return False  # near the end of the response: a search at each arrival would be quadratic
    elif (position := throttle.locate(data, body, end, complete)) == INCOMPLETE:
        return False
    throttle.raise_to(data, position, connection.response.report_ms)
    return True


def _growth(connection: Connection, edit: ResponseEdit) -> int:
    """Return the number of bytes by which the edit lengthens the current response, and count these bytes
    as usage.
    """
    growth = len(edit.replacement) - (edit.stop - edit.start)
    usage = connection.client.usage
    if usage is not None and growth:
        usage.grown(growth)
    return growth


def _refuse_response(connection: Connection, length: int, correlation_id: int, fits: bool) -> None:
    if not fits:
        connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, f"a response of {length} bytes")
        return
    expected = connection.in_flight[0].correlation_id if connection.in_flight else "none"
    connection.violate(
        CloseReason.RESPONSE_UNEXPECTED,
        f"a response with correlation id {correlation_id}, expected {expected}",
    )
