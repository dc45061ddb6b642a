"""Tolls: what requests are charged in request time (KIP-124), from forwarding to response.

A broker charges the time that its threads spent. A proxy estimates it (`quotas.request_time`): most of it
when the request is forwarded, the rest when its response begins to arrive; then it is charged. Every request
has its toll, whoever answers it, but for what brokers exempt: the SASL exchange, acks=0, and what brokers ask
of each other.

A broker takes one request of a connection at a time. So does Weir from clients that are near their limit:
others may have many under way, and would have them all before the first is found to be too much. And where a
mute could be got rid of by connecting anew, the first request of a connection waits it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from protocol.api import ApiKey, response_header_version, versions
from protocol.codec import response_type
from protocol.errors import ProtocolError
from protocol.heads import INCOMPLETE, LENGTH_BYTES, request_body, response_body
from protocol.messages import ProduceRequest
from protocol.places import Place, place
from proxy.rules.authentication import SASL_APIS
from proxy.session.receipts import REQUEST, Receipt
from quotas import Payers
from quotas.request_time import US_PER_PERCENT

if TYPE_CHECKING:
    from proxy.rules.plan import Plan
    from proxy.session.session import Session

Toll: TypeAlias = tuple[float, Payers | None, bool, Receipt | None]
"""What is known of a request's time when it is forwarded, in µs; who pays for it, None if it is exempt;
whether the client's next requests wait for its response; where it is counted, None if nobody wants to know.
"""


def may_begin(session: Session, plan: Plan, data: bytearray, frame: int, end: int) -> bool:
    """Find out who the client of the request `data[frame:end]`, perhaps cut, is: `session.payers`. False if
    the request must wait, for more bytes or for a throttle. Raises ProtocolError.

    A connection does not begin while its client is told to wait. That is once only: others of the client may
    be told to wait again and again. Brokers begin at once, most of what they ask is exempt; and acks=0 goes
    through: who sends that may be gone soon.
    """
    if not plan.has_client_id:
        session.identify_nameless()
        return True
    payers = session.identify(data, frame, end)
    if payers is None:
        return False
    if session.greeted or plan.api_key in SASL_APIS:
        return True
    session.greeted = True
    budget = None if session.tolled is None else session.tolled.request
    if budget is None or session.is_broker or budget.throttled_until_ms <= session.now_ms:
        return True
    acks = _acks(plan, data, frame, end)
    if acks is None or acks == 0:  # then it is not charged: the next one has to wait
        session.greeted = False
        return acks == 0
    session.postpone(budget.throttled_until_ms)
    return False


def _acks(plan: Plan, data: bytearray, frame: int, end: int) -> int | None:
    """How many replicas a produce request waits for, None if that is not here yet; 1 for what is none, and
    for a body that cannot be read.

    Raises ProtocolError for its head.
    """
    known = versions(plan.api_key)
    if plan.api_key != ApiKey.PRODUCE or known is None or plan.version not in known:
        return 1
    acks = place(ProduceRequest, plan.version, "acks")
    body = request_body(data, frame, end, flexible=plan.flexible_request)
    try:
        position = INCOMPLETE if acks is None or body == INCOMPLETE else acks.locate(data, body, end, False)
    except ProtocolError:
        return 1
    return None if acks is None or position == INCOMPLETE else acks.read(data, position)


def pay(session: Session, plan: Plan, toll: Toll, length: int) -> int:
    """Charge a request whose response has this frame length, as soon as that is known; return when the wait
    for it ends, in ms, 0 if there is none.
    """
    us, payers, _alone, receipt = toll
    if payers is None:
        return 0
    if plan.cost is not None:
        us += plan.cost.us_per_response_byte * length
    throttle_ms = session.quotas.charge_request(payers, plan.api_key, us, session.now_ms)
    if receipt is not None:
        _count_time(session, receipt, us, throttle_ms)
    return session.mute(throttle_ms) if throttle_ms > 0 else 0


def _count_time(session: Session, receipt: Receipt, us: float, throttle_ms: int) -> None:
    """Count what was charged for a request, as this broker is taken to be slower or faster than the model,
    and what that was answered with.
    """
    receipt.timed(us * session.quotas.percent_per_us * US_PER_PERCENT)
    if throttle_ms > 0:
        receipt.throttled(REQUEST, throttle_ms)


def count_request(session: Session, plan: Plan, receipt: Receipt, length: int, *, answered: bool) -> None:
    """Count a request of this frame length, all of which is here."""
    receipt.arrived(LENGTH_BYTES + length, length if plan.api_key == ApiKey.PRODUCE else 0, session.now_ms)
    if not answered:
        receipt.over()


def pass_toll(session: Session, plan: Plan, toll: Toll, length: int) -> int:
    """Count and charge a request whose response, of this frame length, begins; return as `pay`."""
    if toll[3] is not None:
        _count_response(session, plan, toll, length)
    return pay(session, plan, toll, length)


def _count_response(session: Session, plan: Plan, toll: Toll, length: int) -> None:
    """Count the response, of this frame length, that begins; before it is charged."""
    receipt = toll[3]
    assert receipt is not None
    assert session.usage is not None
    session.usage.answering(receipt)
    charged = length - plan.flexible_response if plan.on_response and toll[1] is not None else 0
    receipt.answered(LENGTH_BYTES + length, charged, session.now_ms)


def leave(session: Session, plan: Plan, toll: Toll) -> None:
    """Charge a request whose client has gone before its response: the broker does the work all the same."""
    us, payers, _alone, receipt = toll
    if payers is not None:
        throttle_ms = session.quotas.charge_request(payers, plan.api_key, us, session.now_ms)
        if receipt is not None:
            _count_time(session, receipt, us, throttle_ms)
    if receipt is not None:
        receipt.over()


def sent(session: Session, receipt: Receipt, length: int) -> None:
    """Count a response of Weir's own, with its length prefix, which goes out now."""
    receipt.answered(length, 0, session.now_ms)
    receipt.over()


class Tab:
    """What a client pays for a request that is not simply forwarded: Weir answers it, or runs an errand."""

    __slots__ = ("_payers", "_plan", "_receipt", "_session", "_until_ms", "_us")

    def __init__(self, session: Session, plan: Plan, toll: Toll) -> None:
        """`toll` is the request's own."""
        self._session = session
        self._plan = plan
        self._us, self._payers, _alone, self._receipt = toll
        self._until_ms = 0
        """When the longest wait for what was charged ends."""

    def charge(self, length: int) -> None:
        """Charge the request itself, whose response has this frame length."""
        self._charge(self._plan, self._us, length)

    def charge_question(self, api_key: int, version: int, request_length: int, length: int) -> None:
        """Charge what was asked of the broker on the client's behalf."""
        plans = self._session.plans
        plan = plans.get((api_key, version)) or plans.make(api_key, version)
        if plan.cost is not None:
            self._charge(plan, plan.cost.begun_us(request_length), length)

    def _charge(self, plan: Plan, us: float, length: int) -> None:
        self._until_ms = max(
            self._until_ms, pay(self._session, plan, (us, self._payers, True, self._receipt), length)
        )

    @property
    def unsent(self) -> Toll | None:
        """What is left when the request has been charged: to count its response, once that goes out."""
        return None if self._receipt is None else (0.0, None, False, self._receipt)

    def settled(self, frame: bytes) -> bytes:
        """As `told`, of a response that goes out now."""
        if self._receipt is not None:
            sent(self._session, self._receipt, len(frame))
        return self.told(frame)

    def told(self, frame: bytes) -> bytes:
        """The client's response frame, with the wait that is left written into it."""
        report_ms = self._until_ms - self._session.now_ms
        return reported(frame, self._plan, report_ms) if report_ms > 0 else frame


def reported(frame: bytes, plan: Plan, report_ms: int) -> bytes:
    """A response frame of Weir's own that tells at least this throttle time, where its version can.

    What is asked in a version that nobody knows is answered in version 0, which cannot (ApiVersions).
    """
    known = versions(plan.api_key)
    if known is None or plan.version not in known:
        return frame
    place = _throttle_place(plan)
    body = response_body(
        frame, 0, len(frame), flexible=response_header_version(plan.api_key, plan.version) == 1
    )
    if place is None or body == INCOMPLETE:
        return frame
    told = bytearray(frame)
    position = place.locate(told, body, len(told), True)
    if position == INCOMPLETE or place.read(told, position) >= report_ms:
        return frame
    place.write(told, position, report_ms)
    return bytes(told)


def _throttle_place(plan: Plan) -> Place | None:
    """Where the client's version has it; `plan.throttle` is where the broker's has it."""
    return place(response_type(plan.api_key), plan.version, "throttle_time_ms")
