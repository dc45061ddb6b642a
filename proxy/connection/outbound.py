"""The broker's half of a connection: it matches responses to requests, charges and rewrites them, and sets
the throttle times that they tell.
"""

from __future__ import annotations

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
    response_body,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection import replies
from weir.proxy.connection.emptied import EmptiedResponse
from weir.proxy.connection.in_flight import CHARGED, DEFERRED, LOCAL, PLAIN, QUERY, SPARE_MAX, RequestInFlight
from weir.proxy.connection.state import OPEN
from weir.proxy.connection.tokens import from_broker
from weir.proxy.connection.usage_counters import CONSUMER, TOPIC
from weir.proxy.handlers.api_versions.api_versions import refused
from weir.proxy.handlers.decisions import WAIT, Wait
from weir.proxy.handlers.plan import IN_PARTS, ByteCounter, Plan, ResponseEdit, StreamRewrite
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

_unpack = RESPONSE_HEAD.unpack_from
_API_VERSIONS: Final = ApiKey.API_VERSIONS.value

EMPTYING: Final = Wait()
"""Result of `_process` for a fetch response whose records Weir removes while the response arrives, because
the client is over its quota.
"""


class Outbound:
    """Processes the bytes that come from the broker."""

    __slots__ = (
        "_begun",
        "_connection",
        "_counted_bytes",
        "_emptied",
        "_measured_until_ms",
        "_report_ms",
        "_stream_rewrite",
        "_unready_bytes",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False
        """True if the response that is being processed was counted as usage, and its request's time was
        charged. Prevents a second charge when more bytes of the response arrive.
        """
        self._counted_bytes = 0
        """Number of the next bytes of the current response's body that were counted per topic in earlier
        turns and are not forwarded yet.
        """
        self._emptied: EmptiedResponse | None = None
        """The response that is being processed, if its records are being removed; else None."""
        self._stream_rewrite: StreamRewrite | None = None
        """Rewriter of the response that is being forwarded in parts; None if no rewrite is needed."""
        self._unready_bytes = 0
        """Number of bytes of the current response's first part that must wait for the next turn."""
        self._measured_until_ms = 0
        """Time (ms) until which the client is throttled because the current response's bytes have exceeded
        topic rates; 0 for no throttle.
        """
        self._report_ms = INCOMPLETE
        """Throttle time (ms) that the current response must tell; INCOMPLETE until the response has been
        charged.
        """

    def receive(self, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:  # noqa: C901  # a call per branch costs each frame
        """Process `data[:end]`, bytes from the broker, and return the number of bytes consumed.

        `view` is a memoryview of `data`; the bytes to forward are put into the effects as slices of `view`.
        """
        connection = self._connection
        connection.now_ms = now_ms
        if connection.client.sends_sasl_tokens:
            return self._receive_tokens(view, data, end)
        in_flight, spare = connection.in_flight, connection.spare
        longest, frames = connection.limits.response_bytes_max, connection.clock.frames_max
        start = position = 0
        if connection.broker_end.rest_bytes:
            start = position = self._finish_response(data, view, end)
            if connection.broker_turn_over:
                return position
        while end - position >= RESPONSE_HEAD_BYTES and connection.held_until_ms <= now_ms:
            length, correlation_id = _unpack(data, position)
            fits = RESPONSE_LENGTH_MIN <= length <= longest
            if not (fits and in_flight and in_flight[0].correlation_id == correlation_id):
                self._refuse_response(length, correlation_id, fits)
                break
            record = in_flight[0]
            stop = position + LENGTH_BYTES + length
            if record.kind != PLAIN or record.plan.rewrite is not None:
                if frames == 0:
                    self._end_turn()
                    break
                frames -= 1
                complete = stop <= end
                available = stop if complete else end
                edit: ResponseEdit | Wait | None
                if record.kind == QUERY:
                    edit = self._answer_query(record, data, position, available, complete)
                else:
                    edit = self._process(record, data, position, available, length, complete)
                if edit is EMPTYING:
                    if position > start:
                        connection.effects.to_client.append(view[start:position])
                    start = position = available - self._unready_bytes
                    self._empty_rest(stop - position)
                    if self._unready_bytes:
                        self._unready_bytes = 0
                        break
                    continue
                if isinstance(edit, Wait):
                    if not (complete or connection.broker_turn_over) and self._fills_buffer(position, end):
                        self._check_kept(length)
                    break
                self._begun = False
                if edit is not None:
                    LENGTH.pack_into(data, position, length + self._growth(record, edit))
                    connection.effects.to_client.extend((view[start : edit.start], edit.replacement))
                    start = edit.stop
                if self._unready_bytes:
                    end = available - self._unready_bytes
                    self._unready_bytes = 0
            in_flight.popleft()
            if record.kind <= CHARGED and len(spare) < SPARE_MAX:
                spare.append(record)
            if stop > end:
                connection.broker_end.rest_bytes = stop - end
                position = end
                break
            position = stop
            if in_flight and LOCAL <= in_flight[0].kind <= DEFERRED:
                connection.effects.to_client.append(view[start:position])
                start = position
                replies.send_local(connection)
        if position > start:
            connection.effects.to_client.append(view[start:position])
        if not connection.broker_end.rest_bytes and (connection.state != OPEN or in_flight):
            connection.answered()
        return position

    def _receive_tokens(self, view: memoryview, data: bytearray, end: int) -> int:
        """Process bytes while the broker sends bare SASL tokens; return the number of bytes consumed."""
        connection = self._connection
        position = from_broker(connection, data, end)
        if position:
            connection.effects.to_client.append(view[:position])
            connection.answered()
        if position < end and not connection.client.sends_sasl_tokens:
            connection.effects.change()
        return position

    # Responses without records

    def _empty(self, record: RequestInFlight, data: bytearray, body: int, frame: int, end: int) -> None:
        """Begin to remove the records from the response `data[frame:end]`. Raises ProtocolError if the
        response is malformed.
        """
        self._emptied = EmptiedResponse(record.plan, bytes(data[frame:body]))
        self._unready_bytes = end - self._process_part(data, body, end)

    def _empty_rest(self, rest_bytes: int) -> None:
        """Expect `rest_bytes` further bytes of the response whose records are being removed. If `rest_bytes`
        is 0, send the response.
        """
        self._connection.broker_end.rest_bytes = rest_bytes
        if not rest_bytes:
            self._finish_emptied()

    def _finish_emptied(self) -> None:
        """Send the response whose records were removed, with the throttle time. Its bytes are not charged: a
        broker charges such a response and takes the charge back.
        """
        connection, emptied = self._connection, self._emptied
        assert emptied is not None
        record = connection.in_flight[0]
        try:
            frame = emptied.frame()
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return
        end = len(frame)
        self._begun = True
        record.begin_response(connection, end - LENGTH_BYTES, charged=False)
        record.empty(self._mute_emptied(record))
        if record.plan.on_emptied is not None:
            record.plan.on_emptied(connection, frame, emptied.head_bytes, end)
        edit = self._process(record, frame, 0, end, end - LENGTH_BYTES, True)
        if edit is IN_PARTS:
            emptied.mask_all(frame)
        elif isinstance(edit, Wait):
            return  # the response was malformed
        elif edit is not None:
            LENGTH.pack_into(frame, 0, end - LENGTH_BYTES + self._growth(record, edit))
            frame[edit.start : edit.stop] = edit.replacement
        self._begun = False
        self._emptied = None
        connection.in_flight.popleft()
        connection.effects.to_client.append(bytes(frame))
        replies.send_local(connection)

    def _mute_emptied(self, record: RequestInFlight) -> int:
        """Throttle a client that has got a fetch response without records: take no requests from it, because
        of the quotas that it exceeds. Return the time (ms) at which the throttle ends.
        """
        tell, ledger = record.plan.tell, record.ledger
        assert tell is not None
        assert ledger is not None
        client_ms, topic_ms = tell(self._connection, ledger)
        client_until_ms = self._mute(CONSUMER, client_ms) if client_ms else 0
        return max(client_until_ms, self._mute(TOPIC, topic_ms) if topic_ms else 0)

    # Responses that are forwarded in parts

    def _finish_response(self, data: bytearray, view: memoryview, end: int) -> int:
        """Forward the next bytes of a response that arrives in parts. At its end, also send Weir's
        own replies that are next in order. Return the position behind the response's bytes.
        """
        connection = self._connection
        taken = min(connection.broker_end.rest_bytes, end)
        try:
            taken = self._process_part(data, 0, taken)
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return end
        connection.broker_end.rest_bytes -= taken
        if self._emptied is not None:
            self._empty_rest(connection.broker_end.rest_bytes)
            return taken
        connection.effects.to_client.append(view[:taken])
        if not connection.broker_end.rest_bytes:
            self._end_parts()
            replies.send_local(connection)
        return taken

    def _begin_parts(
        self, plan: Plan, data: bytearray, body: int, end: int, body_bytes: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        """Process the first part of a response, `data[body:end]`, as many elements as the turn allows. Leave
        the others for later turns. Return the edit that rewrites the response; WAIT to be called again.
        """
        connection = self._connection
        edit: ResponseEdit | Wait | None = None
        if plan.rewrite_stream is not None:
            self._stream_rewrite = plan.rewrite_stream(body_bytes)
        ready_to = self._process_part(data, body, end)
        if plan.rewrite is not None and plan.rewrite_stream is None:
            # The edit may replace bytes anywhere in this part, so all of the part is counted before.
            self._counted_bytes = ready_to - body
            if ready_to < end:
                return WAIT
            connection.report_ms = max(self._report_ms, 0)
            edit = plan.rewrite(connection, data, body, end, complete)
            if edit is WAIT:
                return self._wait(complete)
            self._counted_bytes = 0
        self._unready_bytes = end - ready_to
        if complete and ready_to == end:
            self._end_parts()
        return edit

    def _process_part(self, data: bytearray, start: int, stop: int) -> int:
        """Count and change the next bytes of a response's body, `data[start:stop]`, as many elements as the
        turn allows. Return the position behind the bytes that may be forwarded; if that is before `stop`, the
        turn is over. Raises ProtocolError if the response is malformed.
        """
        connection, emptied, stream_rewrite = self._connection, self._emptied, self._stream_rewrite
        clock = connection.clock
        elements_max = clock.elements_left()
        counted_to = ready_to = stop
        if emptied is not None:
            counted_to = ready_to = emptied.feed(data, start, stop, elements_max)
            clock.note_scanned(elements_max - emptied.elements_left)
        elif connection.byte_counter is not None:
            counted_to = ready_to = connection.byte_counter.feed(data, start + self._counted_bytes, stop)
        if stream_rewrite is not None:
            ready_to = stream_rewrite.feed(data, start, counted_to, elements_max)
            clock.note_scanned(elements_max - stream_rewrite.elements_left)
        self._counted_bytes = counted_to - ready_to
        if ready_to < stop:
            self._end_turn()
        return ready_to

    def _end_parts(self) -> None:
        """End a response whose last part was processed."""
        if self._connection.byte_counter is not None:
            self._end_measuring(self._connection.byte_counter)
        self._stream_rewrite = None

    def passable_bytes(self) -> int:
        """Return the number of bytes that come next and that nobody needs to see: the rest of a response that
        is being forwarded, or its next records, unless it is counted by topic.
        """
        connection = self._connection
        if self._emptied is not None or connection.byte_counter is not None:
            return 0
        rest_bytes = connection.broker_end.rest_bytes
        if self._stream_rewrite is None:
            return rest_bytes
        return min(self._stream_rewrite.skippable_bytes, rest_bytes)

    def passed(self, count: int, now_ms: int) -> None:
        """Note that the next `count` bytes have been forwarded unseen; at most `passable_bytes`."""
        connection = self._connection
        connection.now_ms = now_ms
        connection.broker_end.rest_bytes -= count
        if self._stream_rewrite is not None:
            self._stream_rewrite.skip(count)
        if not connection.broker_end.rest_bytes:
            self._stream_rewrite = None
            if connection.state != OPEN or connection.in_flight:
                connection.answered()

    def _end_turn(self) -> None:
        """Leave the other bytes that have arrived for the next turn of the reactor."""
        self._connection.broker_turn = self._connection.clock.turn
        self._connection.effects.change()

    def _end_measuring(self, byte_counter: ByteCounter) -> None:
        """Charge the counted bytes of a response that was forwarded in parts and has ended.

        The head of the response was forwarded before the charge, so it cannot tell the throttle time of a
        topic rate. The response to the next fetch of the topic tells it. In hold mode the client is muted at
        once, because there every fetch response keeps its records.
        """
        connection = self._connection
        connection.byte_counter = None
        if connection.hold:
            self._charge_measured(byte_counter)
        else:
            byte_counter.charge(connection.now_ms, told=False)
            if connection.client.usage is not None:
                connection.client.usage.measured(under_way=False)

    # One response

    def _process(  # noqa: C901  # a call per branch costs each charged response
        self, record: RequestInFlight, data: bytearray, frame: int, end: int, length: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        """Charge a response, set its throttle time, and return the edit that rewrites the response. Return
        None if the response needs no edit; WAIT if the response is malformed, held or lacks bytes; EMPTYING
        if the response's records are removed while the response arrives.

        `data[frame:end]` is the part of the response that has arrived, `complete` is True if this is the
        whole response, and `length` is its frame length (bytes). `record` is the request that the response
        answers. After WAIT, this is called again with the same bytes and any new ones; the response is
        charged only once.
        """
        connection, plan, ledger, until_ms = self._connection, record.plan, record.ledger, record.until_ms
        now_ms = connection.now_ms
        try:
            body = response_body(data, frame, end, flexible=plan.flexible_response)
            if body == INCOMPLETE:
                return self._wait(complete)
            if record.kind == CHARGED and not self._begun:
                if ledger is not None and plan.over is not None and plan.over(connection, ledger) > now_ms:
                    self._empty(record, data, body, frame, end)
                    return EMPTYING
                byte_counter = record.byte_counter
                if byte_counter is None and ledger is not None and ledger.topics is not None:
                    byte_counter = (
                        None if plan.byte_counter is None else plan.byte_counter(connection, ledger)
                    )
                if byte_counter is not None and not complete and not self._is_streamed(length):
                    return WAIT
                self._begun = True
                record.forget_byte_counter()
                if record.cost_us or record.time_ledger is not None or record.usage_counters is not None:
                    record.begin_response(connection, length)
                if byte_counter is not None:
                    self._measure(byte_counter, data, body, end, complete)
                until_ms = record.until_ms
            if self._report_ms == INCOMPLETE:
                if until_ms or ledger is not None:
                    self._report_ms = self._charge_bytes(record, length)
            elif until_ms - now_ms > self._report_ms:  # another request has exceeded a quota meanwhile
                self._report_ms = until_ms - now_ms
            if self._report_ms > 0:
                if not self._report(plan, data, body, end, complete):
                    if complete or not self._fills_buffer(frame, end):
                        return self._wait(complete)
                    connection.tell_next(now_ms + self._report_ms, after=record)
                if connection.held_until_ms > now_ms:
                    return WAIT
            edit: ResponseEdit | Wait | None = None
            if connection.byte_counter is not None:
                edit = IN_PARTS
            elif plan.rewrite is not None:
                if complete or plan.rewrite_stream is None or not self._is_streamed(length):
                    connection.report_ms = max(self._report_ms, 0)
                    edit = plan.rewrite(connection, data, body, end, complete)
                    if edit is WAIT:
                        return WAIT if connection.held_until_ms > now_ms else self._wait(complete)
                else:
                    edit = IN_PARTS
            if edit is IN_PARTS and self._emptied is None:
                body_bytes = LENGTH_BYTES + length - (body - frame)
                edit = self._begin_parts(plan, data, body, end, body_bytes, complete)
                if edit is WAIT:
                    return WAIT
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return WAIT
        self._report_ms = INCOMPLETE
        return edit

    def _answer_query(
        self, record: RequestInFlight, data: bytearray, frame: int, end: int, complete: bool
    ) -> ResponseEdit | Wait:
        """Pass a complete response to a query. Return the edit that replaces the response by the query's
        reply to the client, or by no bytes if the query has not ended; WAIT if the response is incomplete.
        """
        if not complete:
            return WAIT
        try:
            reply = replies.answer_query(self._connection, record, data, frame, end)
        except ProtocolError as error:
            self._connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return WAIT
        return ResponseEdit(frame, end, reply)

    def _wait(self, complete: bool) -> Wait:
        if complete:
            self._connection.violate(CloseReason.RESPONSE_MALFORMED, "the response ends within a field")
        return WAIT

    def _charge_bytes(self, record: RequestInFlight, length: int) -> int:
        """Charge the bytes of a response of this frame length to the client's quotas. Return the throttle
        time (ms) that the response must tell.
        """
        connection, until_ms = self._connection, record.until_ms
        if record.ledger is not None:
            for charge in record.plan.on_response:
                throttle_ms = charge(record.ledger, length, connection.now_ms)
                if throttle_ms > 0:
                    until_ms = max(until_ms, self._mute(CONSUMER, throttle_ms))
            record.forget_ledger()
        if self._measured_until_ms:
            until_ms, self._measured_until_ms = max(until_ms, self._measured_until_ms), 0
        report_ms = max(until_ms - connection.now_ms, 0)
        if connection.hold and report_ms and not connection.hurries:
            connection.held_until_ms = until_ms
            connection.effects.change()
        return report_ms

    def _is_streamed(self, length: int) -> bool:
        """Return True if a response of this frame length (bytes) is forwarded before its end has arrived."""
        return LENGTH_BYTES + length > self._connection.limits.stream_above_bytes

    def _fills_buffer(self, frame: int, end: int) -> bool:
        """Return True if the part of a response that has arrived (from `frame` to `end`) fills the buffer."""
        return end - frame >= self._connection.limits.stream_above_bytes

    def _check_kept(self, length: int) -> None:
        """Close the connection if a response of this frame length (bytes) is too long to be kept until all of
        it has arrived. A response that hold mode delays is exempt while the throttle lasts: only its first
        part is kept.
        """
        connection = self._connection
        longest = connection.limits.kept_response_bytes_max
        if length > longest and connection.held_until_ms <= connection.now_ms:
            detail = f"a response of {length} bytes that Weir must read whole, limit {longest}"
            connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, detail)

    def _measure(
        self, byte_counter: ByteCounter, data: bytearray, body: int, end: int, complete: bool
    ) -> None:
        """Count the bytes of the current response: all of them now if the response is complete and the turn
        has time for its elements, else each part when it arrives, or in later turns.
        """
        connection = self._connection
        self._counted_bytes = byte_counter.feed(data, body, end) - body if complete else 0
        if complete and self._counted_bytes == end - body:
            self._counted_bytes = 0
            self._measured_until_ms = self._charge_measured(byte_counter)
        else:
            connection.byte_counter = byte_counter
            if connection.client.usage is not None:
                connection.client.usage.measured(under_way=True)

    def _charge_measured(self, byte_counter: ByteCounter) -> int:
        """Charge the counted bytes; return the time (ms) until which the throttle of a topic rate lasts, 0
        for none.
        """
        connection = self._connection
        throttle_ms = byte_counter.charge(connection.now_ms)
        until_ms = self._mute(TOPIC, throttle_ms) if throttle_ms > 0 else 0
        if connection.client.usage is not None:
            connection.client.usage.measured(under_way=False)
        return until_ms

    def _mute(self, quota: int, throttle_ms: int) -> int:
        """Take no requests from the client for `throttle_ms`, because the current response exceeds a quota.
        Record the throttle time as usage. Return the time (ms) at which the throttle ends.
        """
        connection = self._connection
        until_ms = connection.mute(throttle_ms, QuotaKey.CONSUMER_BYTE_RATE)
        if connection.client.usage is not None:
            connection.client.usage.throttled(quota, until_ms - connection.now_ms)
        return until_ms

    def _report(self, plan: Plan, data: bytearray, body: int, end: int, complete: bool) -> bool:
        """Write Weir's throttle time into the response, unless the broker's throttle time there is longer. If
        the version has no field for it, have the client's next response tell the throttle time.

        Return False if the bytes of the field have not arrived yet.
        """
        if plan.throttle is None:
            self._connection.tell_next(self._connection.now_ms + self._report_ms)
            return True
        if plan.api_key == _API_VERSIONS and refused(data, body, end):
            return True  # brokers refuse a version of ApiVersions in the layout of version 0
        if plan.throttle.fixed_offset is None and not complete:
            return False  # near the end of the response: a search at each arrival would be quadratic
        position = plan.throttle.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return False
        if plan.throttle.read(data, position) < self._report_ms:
            plan.throttle.write(data, position, self._report_ms)
        return True

    def _growth(self, record: RequestInFlight, edit: ResponseEdit) -> int:
        """Return the number of bytes by which the edit lengthens the current response, and count these bytes
        as usage.
        """
        growth = len(edit.replacement) - (edit.stop - edit.start)
        usage = self._connection.client.usage
        if usage is not None and growth and record.kind != QUERY:  # a query's reply was counted
            usage.grown(growth)
        return growth

    def _refuse_response(self, length: int, correlation_id: int, fits: bool) -> None:
        connection = self._connection
        if not fits:
            connection.violate(CloseReason.RESPONSE_LENGTH_WRONG, f"a response of {length} bytes")
            return
        expected = connection.in_flight[0].correlation_id if connection.in_flight else "none"
        connection.violate(
            CloseReason.RESPONSE_UNEXPECTED,
            f"a response with correlation id {correlation_id}, expected {expected}",
        )
