"""The client's half of a session: which requests go to the broker, when, and at whose cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import ProtocolError
from protocol.heads import LENGTH_BYTES, REQUEST_HEAD, REQUEST_HEAD_BYTES, REQUEST_LENGTH_MIN
from proxy.reasons import CloseReason
from proxy.rules.errand import Run
from proxy.rules.plan import LATER, PASS, Admission, Meter, Plan, Wait
from proxy.rules.unread import count_unread
from proxy.session.receipts import PRODUCER, TOPIC
from proxy.session.tokens import from_client
from proxy.session.tolls import Tab, Toll, count_request
from proxy.session.tolls import may_begin as begins

if TYPE_CHECKING:
    from proxy.session.receipts import Receipt
    from proxy.session.session import Session
    from quotas import Payers

_unpack = REQUEST_HEAD.unpack_from

ALONE: Final = Admission(alone=True)
"""As PASS, but the next requests wait for its response."""
LOOK_BYTES: Final = 64 * 1024
"""So much of a request is awaited before it is looked into for what it costs: how a client cuts it must not
make it cheaper. It is nothing that the broker can begin with, either.
"""


class Requests:
    """Judges the bytes that come from the client."""

    __slots__ = ("_session", "_streamed", "_toll")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._streamed: tuple[int, Plan, Admission, int, Toll | None] | None = None
        """A request that is still arriving: correlation id, plan, admission, frame length, toll."""
        self._toll: Toll | None = None
        """Of the request that was judged last."""

    def judge(self, data: bytearray, view: memoryview, end: int, now_ms: int) -> int:
        """Judge `data[:end]`, bytes from the client; return how many of them are consumed.

        `view` is a memoryview of `data`; `to_broker` gets slices of it. On return with `violation` set, close
        the session once what is in `to_broker` was sent.
        """
        session = self._session
        session.now_ms = now_ms
        plans, in_flight, limits = session.plans, session.in_flight, session.limits
        longest, timed = limits.frame_bytes_max, session.quotas.timed or session.usage is not None
        position = self._finish_request(data, end) if session.request_rest_bytes else 0
        start = 0
        may_go = not session.blocked(now_ms)
        if session.following:
            position = from_client(session, data, position, end)
            may_go = not (session.raw or session.blocked(now_ms))
        while may_go and end - position >= REQUEST_HEAD_BYTES:
            length, api_key, version, correlation_id = _unpack(data, position)
            if not REQUEST_LENGTH_MIN <= length <= longest:
                self._refuse_length(data, position, length)
                break
            plan = plans.get((api_key, version)) or plans.make(api_key, version)
            stop = position + LENGTH_BYTES + length
            admission: Admission | None = PASS
            toll: Toll | None = None
            if timed:
                admission = self._decide_timed(plan, data, position, min(stop, end), length)
                toll = self._toll
            elif plan.admit is not None:
                session.postponed, limit = False, min(stop, end)  # if it still is, `admit` says so again
                admission = self._by_precedent(plan, data, position, limit) or self._admit(
                    plan, data, position, limit, stop <= end
                )
            if admission is None:
                break
            if stop > end and admission.errand is None:
                self._streamed = (correlation_id, plan, admission, length, toll)
                session.request_rest_bytes = stop - end
                position = end
                break
            if admission is PASS:
                plan.requests += 1
                in_flight.append((correlation_id, plan, None, 0, toll))
                may_go = len(in_flight) < session.in_flight_max
            elif admission.reply is None and admission.errand is None and admission.deferred is None:
                self._arrived(correlation_id, plan, admission, length, toll)
                may_go = not session.blocked(now_ms)
            else:
                self._pass_on(view, start, position)
                start = stop = self._instead(plan, admission, data, position, min(stop, end), toll)
                may_go = not session.blocked(now_ms)
            position = stop
        if not may_go and (position < end or not session.alone):
            session.attention = True
        if position > start:
            session.to_broker.append(view[start:position])
        return position

    def _by_precedent(self, plan: Plan, data: bytearray, frame: int, end: int) -> Admission | None:
        """What was decided about a request that began as the one at hand does; None if there is none."""
        session = self._session
        precedent = session.precedent
        if (
            precedent is not None
            and precedent.plan is plan
            and data.startswith(precedent.head, frame + REQUEST_HEAD_BYTES)
            and frame + REQUEST_HEAD_BYTES + len(precedent.head) <= end
            and precedent.generation == session.quotas.generation
            and (precedent.budget is None or precedent.budget.throttled_until_ms <= session.now_ms)
        ):
            return precedent.admission
        return None

    def _decide_timed(
        self, plan: Plan, data: bytearray, frame: int, end: int, length: int
    ) -> Admission | None:
        """What to do about the request at hand, None if it must wait; and find out its toll: `_toll`."""
        session, self._toll = self._session, None
        session.postponed = False  # as in `judge`
        quotas, complete = session.quotas, frame + LENGTH_BYTES + length == end
        admission: Admission | None = None
        if plan.admit is not None and session.greeted:
            admission = self._by_precedent(plan, data, frame, end)
        if admission is None:
            named, start = session.named, frame + REQUEST_HEAD_BYTES
            identified = (
                session.greeted
                and session.generation == quotas.generation
                and data.startswith(named, start)
                and start + len(named) <= end
                and plan.has_client_id
            )
            if not (identified or self._may_begin(plan, data, frame, end, complete)):
                return None
        if not complete and plan.extra_us is not None and self._look_later(end - frame):
            return None
        if admission is None:
            admission = PASS if plan.admit is None else self._admit(plan, data, frame, end, complete)
            if admission is None:
                return None
        now_us = session.clock.now_us
        gap_us, quotas.forwarded_us = now_us - quotas.forwarded_us, now_us
        cost, payers = plan.cost, session.tolled
        exempt = payers is None or cost is None or (plan.between_brokers and session.is_broker)
        if exempt or (admission is not PASS and (admission.exempt or not admission.answered)):
            if session.usage is not None:
                self._count(plan, admission, length, complete, (0.0, None, False))
            return admission
        assert cost is not None
        us = cost.us + cost.us_per_byte * length
        if gap_us >= cost.cold_from_us:
            us += cost.cold_us(gap_us)
        if plan.extra_us is not None:
            us += plan.extra_us(session, data, frame, end)
        assert payers is not None
        budget = payers.request
        alone = budget is not None and budget.near
        if session.usage is None:
            self._toll = (us, payers, alone, None)
        else:
            self._count(plan, admission, length, complete, (us, payers, alone))
        return ALONE if alone and admission is PASS else admission

    def _count(
        self,
        plan: Plan,
        admission: Admission,
        length: int,
        complete: bool,
        toll: tuple[float, Payers | None, bool],
    ) -> None:
        """Give the request at hand its toll, with where it is counted; count it, if all of it is here."""
        session = self._session
        assert session.usage is not None
        receipt = session.usage.receipt(plan.group, plan.api_key, plan.version)
        us, payers, alone = toll
        self._toll = (us, payers, alone, receipt)
        if complete and not admission.instead:
            count_request(session, plan, receipt, length, answered=admission.answered)

    def _look_later(self, here_bytes: int) -> bool:
        """Whether a request of which so much is here is still to be looked into, for who pays for it."""
        session = self._session
        return session.tolled is not None and here_bytes < min(LOOK_BYTES, session.limits.stream_above_bytes)

    def _pass_on(self, view: memoryview, start: int, stop: int) -> None:
        """Send what has been judged so far."""
        if stop > start:
            self._session.to_broker.append(view[start:stop])

    def _finish_request(self, data: bytearray, end: int) -> int:
        """Take the rest, or more of it, of a request that is being streamed; return where it stops in the
        buffer.
        """
        session = self._session
        taken = min(session.request_rest_bytes, end)
        session.request_rest_bytes -= taken
        if self._streamed is not None:
            correlation_id, plan, admission, length, toll = self._streamed
            if admission.meter is not None and not self._measure(plan, admission.meter, data, taken):
                admission = admission._replace(meter=None)
                self._streamed = (correlation_id, plan, admission, length, toll)
            if session.request_rest_bytes == 0:
                self._streamed = None
                if toll is not None and toll[3] is not None:
                    count_request(session, plan, toll[3], length, answered=admission.answered)
                self._arrived(correlation_id, plan, admission, length, toll)
        return taken

    def _measure(self, plan: Plan, meter: Meter, data: bytearray, stop: int) -> bool:
        """Feed the meter; False if it cannot read the request: that goes on, for the broker to refuse."""
        try:
            meter.feed(data, 0, stop)
        except ProtocolError:
            session = self._session
            count_unread(session.counters, plan.api_key, plan.version, session.user, session.peer)
            return False
        return True

    def _arrived(
        self, correlation_id: int, plan: Plan, admission: Admission, length: int, toll: Toll | None
    ) -> None:
        """A request is here to its last byte: charge it, and let its response be awaited."""
        session = self._session
        plan.requests += 1
        payers = session.payers
        until_ms = 0
        if admission.charged:
            for charge in plan.on_arrival:
                throttle_ms = charge(payers, length, session.now_ms)
                if throttle_ms > 0:
                    until_ms = max(until_ms, session.mute(throttle_ms))
                    if toll is not None and toll[3] is not None:
                        toll[3].throttled(PRODUCER, throttle_ms)
        if admission.meter is not None:
            throttle_ms = admission.meter.charge(session.now_ms)
            if throttle_ms > 0:
                until_ms = max(until_ms, session.mute(throttle_ms))
                if toll is not None and toll[3] is not None:
                    toll[3].throttled(TOPIC, throttle_ms)
        if admission.answered:
            later = payers if admission.charged and plan.on_response else None
            session.in_flight.append((correlation_id, plan, later, until_ms, toll))
            if admission.alone or (toll is not None and toll[2]):
                session.alone = True

    def _instead(
        self, plan: Plan, admission: Admission, data: bytearray, frame: int, stop: int, toll: Toll | None
    ) -> int:
        """Answer the request `data[frame:stop]` in the broker's place, now or later, or run an errand; return
        how far it is consumed.
        """
        session = self._session
        tab = None if toll is None else Tab(session, plan, toll)
        if toll is not None and toll[3] is not None:
            self._count_instead(plan, admission, data, frame, toll[3])
        if admission.errand is not None:
            session.begin(Run(admission.errand, data, frame, stop), tab)
        elif admission.reply is not None:
            (*_rest, correlation_id) = _unpack(data, frame)
            session.reply(correlation_id, admission.reply, tab)
        elif admission.deferred is not None:
            (*_rest, correlation_id) = _unpack(data, frame)
            session.defer(correlation_id, admission.deferred, tab)
        if admission.again:
            session.attention = True
            return frame
        plan.requests += 1
        return stop

    def _count_instead(
        self, plan: Plan, admission: Admission, data: bytearray, frame: int, receipt: Receipt
    ) -> None:
        """Count a request that is not simply forwarded, unless it comes again."""
        session = self._session
        assert session.usage is not None
        session.usage.errand = receipt
        if admission.again:
            session.usage.again(receipt)
        else:
            count_request(session, plan, receipt, _unpack(data, frame)[0], answered=True)

    def _may_begin(self, plan: Plan, data: bytearray, frame: int, end: int, complete: bool) -> bool:
        """Whether it is known who the client of the request at hand is, and that it need not wait."""
        session = self._session
        try:
            may_begin = begins(session, plan, data, frame, end)
        except ProtocolError as error:
            self._malformed(str(error))
            return False
        if not (may_begin or session.postponed):
            self._check_cut(plan, data, frame, end, complete)
        return may_begin

    def _admit(self, plan: Plan, data: bytearray, frame: int, end: int, complete: bool) -> Admission | None:
        """Ask the plan; None if the request must wait. It raises for a head, or a field that decides what is
        forwarded, that no broker reads either: the client's violation.
        """
        assert plan.admit is not None
        session = self._session
        try:
            admission = plan.admit(session, data, frame, end, complete)
        except ProtocolError as error:
            self._malformed(str(error))
            return None
        if not isinstance(admission, Wait):
            if admission.unread:
                count_unread(session.counters, plan.api_key, plan.version, session.user, session.peer)
            return admission
        if admission is not LATER:
            self._check_cut(plan, data, frame, end, complete)
        return None

    def _check_cut(self, plan: Plan, data: bytearray, frame: int, end: int, complete: bool) -> None:
        """More of a request is needed: a violation if that is all of it, or its head is larger than the
        buffer.
        """
        if complete:
            self._malformed("the request ends within its first fields")
        elif end - frame >= self._session.limits.stream_above_bytes:
            self._check_held(plan, data, frame)

    def _check_held(self, plan: Plan, data: bytearray, frame: int) -> None:
        """A request that fills the buffer may be kept until it is whole, if its plan asks for that."""
        length, most = _unpack(data, frame)[0], self._session.limits.held_bytes_max
        if not plan.whole:
            self._malformed("the request's first fields fill the buffer")
        elif length > most:
            detail = f"a request of {length} bytes that must be judged as a whole, limit {most}: split it"
            self._session.violate(CloseReason.REQUEST_TOO_LARGE, detail)

    def _malformed(self, detail: str) -> None:
        self._session.violate(CloseReason.REQUEST_MALFORMED, detail)

    def _refuse_length(self, data: bytearray, position: int, length: int) -> None:
        """A request length out of bounds is most often not Kafka at all: say what it looks like."""
        violate, longest = self._session.violate, self._session.limits.frame_bytes_max
        if data[position] == 0x16 and data[position + 1] == 0x03:
            detail = "the client speaks TLS, this port does not: set security.protocol=PLAINTEXT there"
            violate(CloseReason.TLS_ON_PLAIN_PORT, detail)
        elif length < REQUEST_LENGTH_MIN:
            violate(CloseReason.REQUEST_TOO_SHORT, f"a request of {length} bytes")
        else:
            detail = f"a request of {length} bytes, limit {longest} (frame_bytes_max); is the client Kafka's?"
            violate(CloseReason.REQUEST_TOO_LARGE, detail)
