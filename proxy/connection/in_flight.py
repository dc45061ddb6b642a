"""Requests in flight: one record each, from the head of the request to the head of its response, with a table
of its states.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from weir.protocol.framing import LENGTH_BYTES
from weir.proxy.connection.charges import (  # fields' types: mypyc wants them at run time
    ChargedConnection,
    charge_request_time,
    count_exempt,
    count_time,
    reported,
)
from weir.proxy.connection.transitions import IMPOSSIBLE
from weir.proxy.connection.usage_counters import UsageCounters
from weir.proxy.handlers.broker_query import RunningQuery
from weir.proxy.handlers.plan import ByteCounter, Plan
from weir.proxy.handlers.request_time.request_features import RequestShapes
from weir.quotas.costs.cost import UNANSWERED_US, confirmed_us
from weir.quotas.limiters.request_time import US_PER_PERCENT

if TYPE_CHECKING:
    from weir.quotas import ClientLedger


class RequestState(IntEnum):
    """State of a request in flight: it says which side responds, and how the response is processed."""

    PLAIN = 0
    """The broker responds, and neither bytes nor request time are charged for the response."""
    CHARGED = 1
    """The broker responds; when the response begins to arrive, bytes or request time are
    charged, or a throttle time is written into it.
    """
    LOCAL = 2
    """Weir itself responds, with the frame in the field `reply`; the request does not go to
    the broker.
    """
    QUERY = 3
    """The broker responds to a request that the query for this request has sent."""
    PAUSED = 4
    """The query for this request begins, or goes on in a later turn, or after the work that it waits for. No
    request of it is at the broker.
    """
    TOKEN = 5
    """The broker responds with a bare SASL token."""
    ARRIVING = 6
    """The request is being forwarded while its remaining bytes arrive. Nothing is charged, and
    the request is not in the queue: a broker ignores an incomplete request.
    """
    ENDED = 7
    """The response has begun to be forwarded; the table of responses has what follows. The record leaves the
    queue, so no record is seen in this state.
    """


class RequestTrigger(IntEnum):
    """Cause of a transition of a request in flight."""

    ARRIVED = 0
    """The last byte was forwarded."""
    CHARGE = 1
    """The response is to be charged, or to tell a throttle time. For an ARRIVING request, also ARRIVED."""
    ASK = 2
    """The query has sent its next request to the broker."""
    ANSWER = 3
    """The query has returned the client's response."""
    RESPONSE = 4
    """The head of the response was forwarded; or Weir's own response was sent; or the query has the response
    to its request.
    """
    LEAVE = 5
    """The connection has closed."""


PLAIN: Final = RequestState.PLAIN.value
CHARGED: Final = RequestState.CHARGED.value
LOCAL: Final = RequestState.LOCAL.value
QUERY: Final = RequestState.QUERY.value
PAUSED: Final = RequestState.PAUSED.value
TOKEN: Final = RequestState.TOKEN.value
ARRIVING: Final = RequestState.ARRIVING.value
ARRIVED: Final = RequestTrigger.ARRIVED.value
CHARGE: Final = RequestTrigger.CHARGE.value
ASK: Final = RequestTrigger.ASK.value
ANSWER: Final = RequestTrigger.ANSWER.value
RESPONSE: Final = RequestTrigger.RESPONSE.value

_NO: Final = IMPOSSIBLE
_END: Final = RequestState.ENDED.value
NEXT_OF_REQUEST: Final = (
    # ARRIVED CHARGE ASK ANSWER RESPONSE LEAVE
    (_NO, CHARGED, _NO, _NO, _END, _END),
    (_NO, CHARGED, _NO, _NO, _END, _END),
    (_NO, _NO, _NO, _NO, _END, _END),
    (_NO, _NO, _NO, _NO, PAUSED, _END),
    (_NO, _NO, QUERY, LOCAL, _NO, _END),
    (_NO, _NO, _NO, _NO, _END, _END),
    (PLAIN, CHARGED, _NO, _NO, _NO, _END),
    (_NO, _NO, _NO, _NO, _NO, _NO),
)
"""Table of the next state, by state and trigger. A request begins as PLAIN, CHARGED, LOCAL, PAUSED, TOKEN or
ARRIVING.
"""

NO_CORRELATION_ID: Final = 1 << 32
"""Correlation id of a query that has paused and has no request at the broker. The value does not fit into
int32, so no response has it.
"""


class RequestInFlight:
    """A request that waits for its response. Connections reuse the record for later requests, so no other
    code may keep a reference.

    `inbound` sets the fields from `state` to `usage_counters`; only requests that Weir answers itself use the
    others.
    """

    __slots__ = (
        "arrived_us",
        "byte_counter",
        "correlation_id",
        "cost_us",
        "ledger",
        "plan",
        "query",
        "reply",
        "state",
        "time_ledger",
        "unconfirmed_us",
        "until_ms",
        "usage_counters",
    )

    def __init__(self, plan: Plan, state: int = PLAIN) -> None:
        self.state = state
        self.correlation_id = 0
        self.plan = plan
        self.ledger: ClientLedger | None = None
        """Quotas of the client, to which the response's bytes are still to be charged; None if they are not
        to be charged any more.
        """
        self.byte_counter: ByteCounter | None = None
        """Counter of the response's bytes that was made for this request; None without a counter, and once
        the response has begun.
        """
        self.until_ms = 0
        """Time (ms) until which the throttle lasts that this request has caused; 0 for no throttle."""
        self.cost_us = 0.0
        """Request time (µs of one thread) that the request has cost so far and that is still to be charged.
        Without `time_ledger` the request is exempt, and its time is counted as such.
        """
        self.unconfirmed_us = 0.0
        """Request time (µs) by which the request may cost more than `cost_us`; 0 if `cost_us` is reliable.
        The broker's response time then shows the true cost.
        """
        self.arrived_us = 0
        """Time (µs) at which the request's last byte arrived; set only if the request's time or usage counts.
        """
        self.time_ledger: ClientLedger | None = None
        """Quotas of the client, to which the request's time is still to be charged; None if the time is not
        to be charged any more.
        """
        self.usage_counters: UsageCounters | None = None
        """Usage counters of the client and API group; None if usage is not recorded."""
        self.reply = b""
        """Response frame of a LOCAL request."""
        self.query: RunningQuery | None = None
        """Query that prepares the response to this request, or the decision about it; None without a query.
        """

    @property
    def timed(self) -> bool:
        """True if request time or usage is still to be charged or counted for the request."""
        return bool(self.cost_us) or self.time_ledger is not None or self.usage_counters is not None

    @property
    def near(self) -> bool:
        """True if the client is near its quota of request time: it may have only one request in flight."""
        budget = None if self.time_ledger is None else self.time_ledger.request
        return budget is not None and budget.near

    def ask(self, correlation_id: int) -> None:
        """Expect the broker's response to the next request of a query. `correlation_id` is the correlation id
        of that request.
        """
        self.correlation_id = correlation_id
        self.state = NEXT_OF_REQUEST[self.state][ASK]

    def begin_query(self, query: RunningQuery) -> None:
        """Wait for a query, which has sent no request to the broker yet."""
        self.state, self.query, self.correlation_id = PAUSED, query, NO_CORRELATION_ID

    def answer(self, frame: bytes, now_ms: int) -> None:
        """Respond with `frame`, Weir's own response, and write the remaining throttle time (ms) into it."""
        self.state = LOCAL if self.query is None else NEXT_OF_REQUEST[self.state][ANSWER]
        report_ms = self.until_ms - now_ms
        self.reply = reported(frame, self.plan, report_ms) if report_ms > 0 else frame
        self.query, self.time_ledger, self.cost_us = None, None, 0.0

    def charge(self, connection: ChargedConnection, length: int) -> None:
        """Charge a request that Weir answers itself, with a response of `length` bytes."""
        self._charge(connection, self.plan, self.cost_us, length)

    def charge_question(self, connection: ChargedConnection, length: int) -> None:
        """Charge the latest request that the query has sent to the broker on the client's behalf. Its
        response has `length` bytes (without the length prefix).
        """
        assert self.query is not None
        plans, (api_key, version) = connection.plans, self.query.asked
        plan = plans.get((api_key, version)) or plans.make(api_key, version)
        if plan.cost is not None:
            self._charge(connection, plan, plan.cost.begun_us(self.query.asked_length), length)

    def _charge(self, connection: ChargedConnection, plan: Plan, us: float, length: int) -> None:
        ledger = self.time_ledger
        if ledger is not None:
            until_ms = charge_request_time(connection, plan, us, ledger, self.usage_counters, length)
            self.until_ms = max(self.until_ms, until_ms)

    def count_reply(self, now_ms: int) -> None:
        """Count Weir's own response, which is being sent, as usage."""
        if self.usage_counters is not None:
            self.usage_counters.answered(len(self.reply), 0, now_ms)
            self.usage_counters.over()

    def abandon_query(self, connection: ChargedConnection) -> None:
        """End the query, because the client has closed the connection. If a request of the query is at the
        broker, charge the client for it; if the query has sent none, charge the client's own request.
        """
        run = self.query
        assert run is not None
        if self.state == QUERY:
            self.charge_question(connection, 0)
        elif not run.asked_length:
            self.charge(connection, 0)
        if self.usage_counters is not None:
            self.usage_counters.over()
        run.end()

    def tell_no_later(self, until_ms: int) -> None:
        """Have the request's response tell no throttle time that lasts longer than until `until_ms` (ms)."""
        self.until_ms = min(self.until_ms, until_ms)

    def tell(self, until_ms: int) -> None:
        """Have the request's response tell a throttle time that lasts until `until_ms` (ms)."""
        self.state = NEXT_OF_REQUEST[self.state][CHARGE]
        if until_ms > self.until_ms:
            self.until_ms = until_ms

    def begin_response(self, connection: ChargedConnection, length: int, *, charged: bool = True) -> None:
        """Charge the request's time, and count as usage the response, which begins to arrive and has `length`
        bytes (without the length prefix). A second call for the same request has no effect. `charged` is
        False if the response's bytes do not count for a byte rate, because its records are removed.
        """
        plan = self.plan
        usage_counters, self.usage_counters = self.usage_counters, None
        ledger, self.time_ledger = self.time_ledger, None
        if usage_counters is not None and (usage := connection.client.usage) is not None:
            usage.answering(usage_counters)
            counted = (
                length - plan.flexible_response if charged and plan.on_response and ledger is not None else 0
            )
            response_time_us = connection.clock.now_us - self.arrived_us
            usage_counters.answered(LENGTH_BYTES + length, counted, connection.now_ms, response_time_us)
        if self.unconfirmed_us:
            self._confirm(connection)
        cost_us, self.cost_us = self.cost_us, 0.0
        if ledger is not None:
            until_ms = charge_request_time(connection, plan, cost_us, ledger, usage_counters, length)
            if until_ms > self.until_ms:
                self.until_ms = until_ms
        elif cost_us:
            count_exempt(connection, plan, cost_us, length)

    def _confirm(self, connection: ChargedConnection) -> None:
        """Correct the request's estimated cost, if it is unconfirmed, by the broker's response time. If
        several requests of the connection were at the broker at the same time, the common part of their
        response times counts once.
        """
        shapes = connection.state_of(RequestShapes)
        now_us, begun_us = connection.clock.now_us, max(self.arrived_us, shapes.settled_us)
        scale = connection.client.quotas.percent_per_us * US_PER_PERCENT
        self.cost_us = confirmed_us(self.cost_us, self.unconfirmed_us, (now_us - begun_us) / scale)
        shapes.settled_us = min(now_us, begun_us + int(2 * self.cost_us * scale))
        self.unconfirmed_us = 0.0

    def leave(self, connection: ChargedConnection) -> None:
        """Charge the request's time to a client that closes the connection before the response: the broker
        processes the request nevertheless. Record the charge as usage.
        """
        ledger, usage_counters = self.time_ledger, self.usage_counters
        if self.ledger is not None and self.plan.on_leave is not None:
            self.plan.on_leave(self.ledger)
        if self.unconfirmed_us:
            self.cost_us += min(self.unconfirmed_us, UNANSWERED_US)
            self.unconfirmed_us = 0.0
        if ledger is not None:
            throttle_ms = ledger.charge_request(self.plan.api_key, self.cost_us, connection.now_ms)
            if usage_counters is not None:
                count_time(connection, usage_counters, self.cost_us, throttle_ms)
        elif self.cost_us:
            count_exempt(connection, self.plan, self.cost_us, 0)
        if usage_counters is not None:
            usage_counters.over()


SPARE: Final[list[RequestInFlight]] = []
"""Records of answered requests, kept for reuse by any connection of the process."""
SPARE_MAX: Final = 256
"""Maximum number of records in `SPARE`."""
