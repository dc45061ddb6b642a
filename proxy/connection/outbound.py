"""The broker's half of a connection: responses matched, charged, reported, rewritten, and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.api import ApiKey
from protocol.errors import ProtocolError
from protocol.framing import (
    INCOMPLETE,
    LENGTH,
    LENGTH_BYTES,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    RESPONSE_LENGTH_MIN,
    response_body,
)
from proxy.close_reasons import CloseReason
from proxy.connection import replies
from proxy.connection.emptied import EmptiedResponse
from proxy.connection.in_flight import CHARGED, DEFERRED, LOCAL, PLAIN, QUERY, SPARE_MAX, RequestInFlight
from proxy.connection.state import OPEN
from proxy.connection.tokens import from_broker
from proxy.connection.usage_counters import CONSUMER, TOPIC
from proxy.handlers.api_versions.api_versions import refused
from proxy.handlers.decisions import WAIT, Wait
from proxy.handlers.plan import ByteCounter, Plan, ResponseEdit, StreamRewrite

if TYPE_CHECKING:
    from proxy.connection.connection import Connection

_unpack = RESPONSE_HEAD.unpack_from
_API_VERSIONS: Final = ApiKey.API_VERSIONS.value

TURN_FRAMES: Final = 32
"""Number of responses that are charged or changed in a turn; see `inbound.TURN_FRAMES`."""
EMPTYING: Final = Wait()
"""The records are being taken out of the response."""


class Outbound:
    """Judges the bytes that come from the broker."""

    __slots__ = ("_begun", "_connection", "_emptied", "_measured_until_ms", "_report_ms", "_stream_rewrite")

    def __init__(self, connection: Connection) -> None:
        """Begin with nothing read."""
        self._connection = connection
        self._begun = False
        """True if the response at hand was counted, and its request's time charged."""
        self._emptied: EmptiedResponse | None = None
        """The response at hand, if its records are being taken out."""
        self._stream_rewrite: StreamRewrite | None = None
        """Changes the response at hand while it goes on in parts."""
        self._measured_until_ms = 0
        """Time (ms) until which the throttle lasts that was measured in the response at hand."""
        self._report_ms = INCOMPLETE
        """Throttle time (ms) of the response at hand, once it has been charged."""

    def judge(self, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:  # noqa: C901  # a call per branch costs each frame
        """Judge `data[:end]`, bytes from the broker; return how many of them are consumed.

        Counterpart of `Inbound.judge`.
        """
        connection = self._connection
        connection.now_ms = now_ms
        if connection.client.sends_sasl_tokens:
            return self._judge_tokens(view, data, end)
        in_flight, spare = connection.in_flight, connection.spare
        longest, frames = connection.limits.response_bytes_max, TURN_FRAMES
        position = start = self._finish_response(data, view, end) if connection.response_rest_bytes else 0
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
                    connection.broker_turn_over = True
                    connection.effects.change()
                    break
                frames -= 1
                complete = stop <= end
                here = stop if complete else end
                splice: ResponseEdit | Wait | None
                if record.kind == QUERY:
                    splice = self._go_on(record, data, position, here, complete)
                else:
                    splice = self._treat(record, data, position, here, length, complete)
                if splice is EMPTYING:
                    if position > start:
                        connection.effects.to_client.append(view[start:position])
                    start = position = here
                    self._empty_rest(stop - position)
                    continue
                if isinstance(splice, Wait):
                    break
                self._begun = False
                if splice is not None:
                    LENGTH.pack_into(data, position, length + self._growth(record, splice))
                    connection.effects.to_client.extend((view[start : splice.start], splice.replacement))
                    start = splice.stop
            in_flight.popleft()
            if record.kind <= CHARGED and len(spare) < SPARE_MAX:
                spare.append(record)
            if stop > end:
                connection.response_rest_bytes = stop - end
                position = end
                break
            position = stop
            if in_flight and LOCAL <= in_flight[0].kind <= DEFERRED:
                connection.effects.to_client.append(view[start:position])
                start = position
                replies.send_local(connection)
        if position > start:
            connection.effects.to_client.append(view[start:position])
        if not connection.response_rest_bytes and (connection.state != OPEN or in_flight):
            connection.answered()
        return position

    def _judge_tokens(self, view: memoryview, data: bytearray, end: int) -> int:
        """Judge bytes while the broker sends bare SASL tokens."""
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
        """Begin to take the records out of the response `data[frame:end]`. Raises ProtocolError."""
        self._emptied = EmptiedResponse(record.plan.version, bytes(data[frame:body]))
        self._emptied.feed(data, body, end)

    def _empty_rest(self, rest_bytes: int) -> None:
        """Go on with the bytes of the response that are still to come."""
        self._connection.response_rest_bytes = rest_bytes
        if not rest_bytes:
            self._finish_emptied()

    def _finish_emptied(self) -> None:
        """Send the response whose records were taken out: it tells the throttle time and is not charged in
        bytes (a broker takes such a charge back).
        """
        connection, emptied = self._connection, self._emptied
        assert emptied is not None
        record, self._emptied = connection.in_flight[0], None
        try:
            frame = emptied.frame()
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return
        end = len(frame)
        self._begun = True
        record.begin_response(connection, end - LENGTH_BYTES, charged=False)
        record.empty(self._tell(record))
        if connection.fetch_session is not None:
            connection.fetch_session.answered(frame, emptied.head_bytes, end)
        splice = self._treat(record, frame, 0, end, end - LENGTH_BYTES, True)
        if isinstance(splice, Wait):
            return  # the response was malformed
        if splice is not None:
            LENGTH.pack_into(frame, 0, end - LENGTH_BYTES + self._growth(record, splice))
            frame[splice.start : splice.stop] = splice.replacement
        self._begun = False
        connection.in_flight.popleft()
        connection.effects.to_client.append(bytes(frame))
        replies.send_local(connection)

    def _tell(self, record: RequestInFlight) -> int:
        """Mute the connection for the quotas that its client is over; return when that ends. No bytes of the
        response, which has no records, are charged.
        """
        tell, ledger = record.plan.tell, record.ledger
        assert tell is not None
        assert ledger is not None
        client_ms, topic_ms = tell(self._connection, ledger)
        client_until_ms = self._mute(CONSUMER, client_ms) if client_ms else 0
        return max(client_until_ms, self._mute(TOPIC, topic_ms) if topic_ms else 0)

    # Responses that go on in parts

    def _finish_response(self, data: bytearray, view: memoryview, end: int) -> int:
        """Pass on the rest, or more of it, of a response that goes on in parts, and own replies that waited
        for its end; return where it stops in the buffer.
        """
        connection = self._connection
        taken = min(connection.response_rest_bytes, end)
        try:
            if self._emptied is not None:
                self._emptied.feed(data, 0, taken)
            elif self._stream_rewrite is not None:
                self._stream_rewrite.feed(data, 0, taken)
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return end
        connection.response_rest_bytes -= taken
        if self._emptied is not None:
            self._empty_rest(connection.response_rest_bytes)
            return taken
        connection.effects.to_client.append(view[:taken])
        if connection.byte_counter is not None:
            self._measure_more(connection.byte_counter, data, taken)
        if not connection.response_rest_bytes:
            self._stream_rewrite = None
            replies.send_local(connection)
        return taken

    def _measure_more(self, byte_counter: ByteCounter, data: bytearray, stop: int) -> None:
        """Measure more of a response that goes on in parts, and charge it at its end.

        Its head has gone on, so it tells no throttle time: the next fetch of the topic does. In hold mode, in
        which every fetch gets its records, the client is muted.
        """
        connection = self._connection
        try:
            byte_counter.feed(data, 0, stop)
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        if not connection.response_rest_bytes:
            self._end_measuring(byte_counter)

    def _end_measuring(self, byte_counter: ByteCounter) -> None:
        """Charge a response that has gone on in parts."""
        connection = self._connection
        connection.byte_counter = None
        if connection.hold:
            self._charge_measured(byte_counter)
        else:
            byte_counter.charge(connection.now_ms, told=False)
            if connection.client.usage is not None:
                connection.client.usage.measured(under_way=False)

    # One response

    def _treat(  # noqa: C901  # a call per branch costs each charged response
        self, record: RequestInFlight, data: bytearray, frame: int, end: int, length: int, complete: bool
    ) -> ResponseEdit | Wait | None:
        """Charge, report and rewrite the response at hand, each once, however often its bytes are presented.

        It is `data[frame:end]`, all of it if complete, has this frame length, and answers the oldest request
        in flight.
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
                byte_counter: ByteCounter | None = None
                if ledger is not None and ledger.topics is not None and plan.byte_counter is not None:
                    byte_counter = plan.byte_counter(connection, ledger)
                if byte_counter is not None and not complete and not self._is_streamed(length):
                    return WAIT
                self._begun = True
                if record.time_ledger is not None or record.usage_counters is not None:
                    record.begin_response(connection, length)
                if byte_counter is not None:
                    self._measure(byte_counter, data, body, end, complete)
                until_ms = record.until_ms
            if self._report_ms == INCOMPLETE:
                if until_ms or ledger is not None:
                    self._report_ms = self._settle(record, length)
            elif until_ms - now_ms > self._report_ms:  # another request has exceeded a quota since
                self._report_ms = until_ms - now_ms
            if self._report_ms > 0:
                if not self._report(plan, data, body, end, complete):
                    return self._wait(complete)
                if connection.held_until_ms > now_ms:
                    return WAIT
            splice: ResponseEdit | Wait | None = None
            if plan.rewrite is not None:
                if complete or plan.rewrite_stream is None or not self._is_streamed(length):
                    connection.report_ms = max(self._report_ms, 0)
                    splice = plan.rewrite(connection, data, body, end, complete)
                    if splice is WAIT:
                        return self._wait(complete)
                else:
                    self._stream_rewrite = plan.rewrite_stream()
                    self._stream_rewrite.feed(data, body, end)
            if connection.byte_counter is not None:
                self._measure_first(connection.byte_counter, data, body, end, complete)
        except ProtocolError as error:
            connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return WAIT
        self._report_ms = INCOMPLETE
        return splice

    def _go_on(
        self, record: RequestInFlight, data: bytearray, frame: int, end: int, complete: bool
    ) -> ResponseEdit | Wait:
        """Give a query its answer, once that is here as a whole; the client gets the query's reply, if it is
        over.
        """
        if not complete:
            return WAIT
        try:
            reply = replies.go_on(self._connection, record, data, frame, end)
        except ProtocolError as error:
            self._connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return WAIT
        return ResponseEdit(frame, end, reply)

    def _wait(self, complete: bool) -> Wait:
        if complete:
            self._connection.violate(CloseReason.RESPONSE_MALFORMED, "the response ends within a field")
        return WAIT

    def _settle(self, record: RequestInFlight, length: int) -> int:
        """Charge the response in bytes; return the throttle time (ms) to report."""
        connection, until_ms = self._connection, record.until_ms
        if record.ledger is not None:
            for charge in record.plan.on_response:
                throttle_ms = charge(record.ledger, length, connection.now_ms)
                if throttle_ms > 0:
                    until_ms = max(until_ms, self._mute(CONSUMER, throttle_ms))
        if self._measured_until_ms:
            until_ms, self._measured_until_ms = max(until_ms, self._measured_until_ms), 0
        report_ms = max(until_ms - connection.now_ms, 0)
        if connection.hold and report_ms:
            connection.held_until_ms = until_ms
            connection.effects.change()
        return report_ms

    def _is_streamed(self, length: int) -> bool:
        """Return whether a response of this frame length goes on before its end is here."""
        return LENGTH_BYTES + length > self._connection.limits.stream_above_bytes

    def _measure(
        self, byte_counter: ByteCounter, data: bytearray, body: int, end: int, complete: bool
    ) -> None:
        """Measure the response at hand: now, if all of it is here at once, else as it goes by."""
        connection = self._connection
        if complete:
            byte_counter.feed(data, body, end)
            self._measured_until_ms = self._charge_measured(byte_counter)
        else:
            connection.byte_counter = byte_counter
            if connection.client.usage is not None:
                connection.client.usage.measured(under_way=True)

    def _measure_first(
        self, byte_counter: ByteCounter, data: bytearray, body: int, end: int, complete: bool
    ) -> None:
        """Begin to measure a response that goes on in parts, once its first part does: not each time that is
        presented. Raises ProtocolError.
        """
        byte_counter.feed(data, body, end)
        if complete:  # it was in parts before it waited
            self._end_measuring(byte_counter)

    def _charge_measured(self, byte_counter: ByteCounter) -> int:
        """Charge what was measured; return until when (ms) the throttle lasts, 0 if there is none."""
        connection = self._connection
        throttle_ms = byte_counter.charge(connection.now_ms)
        until_ms = self._mute(TOPIC, throttle_ms) if throttle_ms > 0 else 0
        if connection.client.usage is not None:
            connection.client.usage.measured(under_way=False)
        return until_ms

    def _mute(self, quota: int, throttle_ms: int) -> int:
        """Mute the connection for the response at hand, and count the time that its client is told; return
        when that ends.
        """
        connection = self._connection
        until_ms = connection.mute(throttle_ms)
        if connection.client.usage is not None:
            connection.client.usage.throttled(quota, until_ms - connection.now_ms)
        return until_ms

    def _report(self, plan: Plan, data: bytearray, body: int, end: int, complete: bool) -> bool:
        """Write the throttle time, the larger of ours and the broker's, where the version has it.

        False if more bytes are needed.
        """
        if plan.throttle is None:
            self._connection.tell_next(self._connection.now_ms + self._report_ms)
            return True
        if plan.api_key == _API_VERSIONS and refused(data, body, end):
            return True  # brokers refuse a version of ApiVersions in the layout of version 0
        position = plan.throttle.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return False
        if plan.throttle.read(data, position) < self._report_ms:
            plan.throttle.write(data, position, self._report_ms)
        return True

    def _growth(self, record: RequestInFlight, splice: ResponseEdit) -> int:
        """Return by how much the response at hand becomes longer."""
        growth = len(splice.replacement) - (splice.stop - splice.start)
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
