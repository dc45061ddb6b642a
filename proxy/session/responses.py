"""The broker's half of a session: responses matched, charged, reported, rewritten, and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api import ApiKey
from protocol.errors import ProtocolError
from protocol.heads import (
    INCOMPLETE,
    LENGTH,
    LENGTH_BYTES,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    RESPONSE_LENGTH_MIN,
    response_body,
)
from proxy.reasons import CloseReason
from proxy.rules.api_versions import refused
from proxy.rules.deferred import Deferred
from proxy.rules.errand import Run
from proxy.rules.plan import ERRAND, LOCAL, WAIT, Meter, Plan, Splice, StreamRewrite, Wait
from proxy.session.receipts import CONSUMER, TOPIC
from proxy.session.tokens import from_broker
from proxy.session.tolls import pass_toll
from quotas import Payers

if TYPE_CHECKING:
    from proxy.session.session import Session

_unpack = RESPONSE_HEAD.unpack_from


class Responses:
    """Judges the bytes that come from the broker."""

    __slots__ = ("_measured_until_ms", "_report_ms", "_session", "_stream_rewrite")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stream_rewrite: StreamRewrite | None = None
        self._measured_until_ms = 0
        """When the wait for what was measured in the response at hand ends."""
        self._report_ms = INCOMPLETE
        """The throttle time of the response at hand, once it has been charged."""

    def judge(self, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:
        """Judge `data[:end]`, bytes from the broker; return how many of them are consumed.

        Counterpart of `requests`.
        """
        session = self._session
        session.now_ms = now_ms
        if session.raw:
            return self._judge_tokens(view, data, end)
        in_flight, longest = session.in_flight, session.limits.response_bytes_max
        position = start = self._finish_response(data, view, end) if session.response_rest_bytes else 0
        while end - position >= RESPONSE_HEAD_BYTES and session.held_until_ms <= now_ms:
            length, correlation_id = _unpack(data, position)
            fits = RESPONSE_LENGTH_MIN <= length <= longest
            if not (fits and in_flight and in_flight[0][0] == correlation_id):
                self._refuse_response(length, correlation_id, fits)
                break
            _id, plan, payers, until_ms, toll = in_flight[0]
            if toll is not None:
                until_ms = max(until_ms, pass_toll(session, plan, toll, length))
                in_flight[0] = (_id, plan, payers, until_ms, None)  # once, however often it is presented
            stop = position + LENGTH_BYTES + length
            if until_ms or payers is not None or plan.rewrite is not None:
                splice = self._treat(data, position, min(stop, end), stop <= end)
                if isinstance(splice, Wait):
                    break
                if splice is not None:
                    LENGTH.pack_into(data, position, length + self._growth(plan, splice))
                    session.to_client += (view[start : splice.start], splice.replacement)
                    start = splice.stop
            in_flight.popleft()
            if stop > end:
                session.response_rest_bytes = stop - end
                position = end
                break
            position = stop
            if in_flight and in_flight[0][1] is LOCAL:
                session.to_client.append(view[start:position])
                start = position
                session.send_local()
        if position > start:
            session.to_client.append(view[start:position])
        if not session.response_rest_bytes:
            session.answered()
        return position

    def _judge_tokens(self, view: memoryview, data: bytearray, end: int) -> int:
        """Do what `judge` does while the broker sends bare SASL tokens."""
        session = self._session
        position = from_broker(session, data, end)
        if position:
            session.to_client.append(view[:position])
            session.answered()
        if position < end and not session.raw:
            session.attention = True
        return position

    def _finish_response(self, data: bytearray, view: memoryview, end: int) -> int:
        """Pass on the rest, or more of it, of a response that is being streamed, and own replies that waited
        for its end; return where it stops in the buffer.
        """
        session = self._session
        taken = min(session.response_rest_bytes, end)
        if self._stream_rewrite is not None:
            try:
                self._stream_rewrite.feed(data, 0, taken)
            except ProtocolError as error:
                session.violate(CloseReason.RESPONSE_MALFORMED, str(error))
                return end
        session.to_client.append(view[:taken])
        session.response_rest_bytes -= taken
        if session.meter is not None:
            self._measure_more(session.meter, data, taken)
        if not session.response_rest_bytes:
            self._stream_rewrite = None
            session.send_local()
        return taken

    def _measure_more(self, meter: Meter, data: bytearray, stop: int) -> None:
        """More of a response that is measured as it goes by; at its end the client is muted, if need be."""
        try:
            meter.feed(data, 0, stop)
        except ProtocolError as error:
            self._session.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        if not self._session.response_rest_bytes:
            self._session.meter = None
            self._charge_measured(meter)

    def _treat(self, data: bytearray, frame: int, end: int, complete: bool) -> Splice | Wait | None:
        """Charge, report and rewrite the response at hand, each once, however often its bytes are presented.

        It is `data[frame:end]`, all of it if complete, and answers the oldest request in flight.
        """
        session = self._session
        _id, plan, payers, until_ms, _toll = session.in_flight[0]
        try:
            if plan is ERRAND:
                return self._go_on(data, frame, end, complete)
            body = response_body(data, frame, end, flexible=plan.flexible_response)
            if body == INCOMPLETE:
                return self._wait(complete)
            (length,) = LENGTH.unpack_from(data, frame)
            if self._report_ms == INCOMPLETE and (until_ms or payers is not None):
                measured = plan.meter is not None and payers is not None
                if measured and not self._measured(plan, data, body, end, complete, length):
                    return WAIT
                self._report_ms = self._settle(plan, payers, until_ms, length)
            if self._report_ms > 0:
                if not self._report(plan, data, body, end, complete):
                    return self._wait(complete)
                if session.held_until_ms > session.now_ms:
                    return WAIT
            splice: Splice | Wait | None = None
            if plan.rewrite_stream is not None and LENGTH_BYTES + length > session.limits.stream_above_bytes:
                self._stream_rewrite = plan.rewrite_stream()
                self._stream_rewrite.feed(data, body, end)
            elif plan.rewrite is not None:
                session.report_ms = max(self._report_ms, 0)
                splice = plan.rewrite(session, data, body, end, complete)
            if isinstance(splice, Wait):
                return self._wait(complete)
            self._measure_first(data, body, end, complete)
        except ProtocolError as error:
            session.violate(CloseReason.RESPONSE_MALFORMED, str(error))
            return WAIT
        self._report_ms = INCOMPLETE
        return splice

    def _go_on(self, data: bytearray, frame: int, end: int, complete: bool) -> Splice | Wait:
        """Give an errand its answer, once that is here as a whole; the client gets the errand's reply, if it
        is over.
        """
        run = self._session.in_flight[0][2]
        assert isinstance(run, Run)
        if not complete:
            return WAIT
        self._session.go_on(run, data, frame, end)
        return Splice(frame, end, run.reply or b"")

    def _wait(self, complete: bool) -> Wait:
        if complete:
            self._session.violate(CloseReason.RESPONSE_MALFORMED, "the response ends within a field")
        return WAIT

    def _settle(
        self, plan: Plan, payers: Payers | bytes | Deferred | Run | None, until_ms: int, length: int
    ) -> int:
        """Charge what the response costs; return the throttle time to report, in ms."""
        session = self._session
        if payers is not None:
            assert isinstance(payers, Payers)
            for charge in plan.on_response:
                throttle_ms = charge(payers, length, session.now_ms)
                if throttle_ms > 0:
                    until_ms = max(until_ms, session.mute(throttle_ms))
                    if session.usage is not None:
                        session.usage.throttled(CONSUMER, throttle_ms)
        if self._measured_until_ms:
            until_ms, self._measured_until_ms = max(until_ms, self._measured_until_ms), 0
        report_ms = max(until_ms - session.now_ms, 0)
        if session.hold and report_ms:
            session.held_until_ms = until_ms
            session.attention = True
        return report_ms

    def _measured(
        self, plan: Plan, data: bytearray, body: int, end: int, complete: bool, length: int
    ) -> bool:
        """Have the response at hand measured: now, if all of it is here at once, else as it goes by.

        False if more bytes are needed.
        """
        session = self._session
        meter = plan.meter(session) if plan.meter is not None else None
        if meter is None:
            return True
        if not complete and LENGTH_BYTES + length <= session.limits.stream_above_bytes:
            return False
        if complete:
            meter.feed(data, body, end)
            self._measured_until_ms = self._charge_measured(meter)
        else:
            session.meter = meter
            if session.usage is not None:
                session.usage.measured(under_way=True)
        return True

    def _measure_first(self, data: bytearray, body: int, end: int, complete: bool) -> None:
        """Begin to measure a response that goes on in parts, once its first part does: not each time that is
        presented. Raises ProtocolError.
        """
        meter = self._session.meter
        if meter is None:
            return
        meter.feed(data, body, end)
        if complete:  # it was in parts before it waited
            self._session.meter = None
            self._charge_measured(meter)

    def _charge_measured(self, meter: Meter) -> int:
        """Charge what was measured; return when the wait for it ends, in ms, 0 if there is none."""
        session = self._session
        throttle_ms = meter.charge(session.now_ms)
        if session.usage is not None:
            if throttle_ms > 0:
                session.usage.throttled(TOPIC, throttle_ms)
            session.usage.measured(under_way=False)
        return session.mute(throttle_ms) if throttle_ms > 0 else 0

    def _report(self, plan: Plan, data: bytearray, body: int, end: int, complete: bool) -> bool:
        """Write the throttle time, the larger of ours and the broker's, where the version has it.

        False if more bytes are needed.
        """
        if plan.throttle is None or (plan.api_key == ApiKey.API_VERSIONS and refused(data, body, end)):
            return True  # brokers refuse a version of ApiVersions in the layout of version 0
        position = plan.throttle.locate(data, body, end, complete)
        if position == INCOMPLETE:
            return False
        if plan.throttle.read(data, position) < self._report_ms:
            plan.throttle.write(data, position, self._report_ms)
        return True

    def _growth(self, plan: Plan, splice: Splice) -> int:
        """By how much the response at hand becomes longer."""
        growth = len(splice.replacement) - (splice.stop - splice.start)
        usage = self._session.usage
        if usage is not None and growth and plan is not ERRAND:  # its answer was counted by its tab
            usage.grown(growth)
        return growth

    def _refuse_response(self, length: int, correlation_id: int, fits: bool) -> None:
        if not fits:
            self._session.violate(CloseReason.RESPONSE_LENGTH_WRONG, f"a response of {length} bytes")
            return
        expected = self._session.in_flight[0][0] if self._session.in_flight else "none"
        self._session.violate(
            CloseReason.RESPONSE_UNEXPECTED,
            f"a response with correlation id {correlation_id}, expected {expected}",
        )
