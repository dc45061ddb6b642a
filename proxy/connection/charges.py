"""Request-time charges: the time of a broker's threads that requests cost (KIP-124), and the usage they
count.

A broker charges the time that its threads spent. A proxy estimates it (`quotas.costs.cost`): most of it
when the request is forwarded, the rest when its response begins to arrive; then it is charged. Every request
is charged, whoever answers it, but for those that brokers exempt: the SASL exchange, acks=0, and requests of
brokers among themselves.

A broker takes one request of a connection at a time. So does Weir from clients that are near their limit:
others may have many under way, and would have them all before the first is found to be too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from protocol.api import ApiKey, response_header_version, versions
from protocol.codec import response_type
from protocol.framing import INCOMPLETE, LENGTH_BYTES, response_body
from protocol.scanning.field_offsets import FieldOffset, field_offset
from proxy.connection.effects import Clock  # fields' types: mypyc wants them at run time
from proxy.connection.usage_counters import REQUEST, UsageCounters
from proxy.handlers.plan import Plan
from quotas import BrokerQuotas, ClientLedger
from quotas.limiters.request_time import US_PER_PERCENT

if TYPE_CHECKING:
    from proxy.connection.client import Client
    from proxy.handlers.plans import Plans


_PRODUCE: Final = ApiKey.PRODUCE.value


class Charged(Protocol):
    """The part of a connection that charges need."""

    @property
    def now_ms(self) -> int:
        """The time."""

    clock: Clock
    """The time in µs."""
    settled_us: int
    """Time (µs) until which the broker's work on this connection is charged, as far as latencies tell."""

    @property
    def quotas(self) -> BrokerQuotas:
        """The quotas of the broker's clients."""

    @property
    def plans(self) -> Plans:
        """The plans for the broker's versions."""

    @property
    def client(self) -> Client:
        """The client, whose usage may be recorded."""

    def mute(self, throttle_ms: int) -> int:
        """Take no request for this long; return when that ends."""


def charge_request_time(
    connection: Charged,
    plan: Plan,
    us: float,
    ledger: ClientLedger,
    usage_counters: UsageCounters | None,
    length: int,
) -> int:
    """Charge a request that has cost `us` so far and whose response has this frame length; return until when
    (ms) its throttle lasts, 0 if there is none.
    """
    if plan.cost is not None:
        us += plan.cost.us_per_response_byte * length
    throttle_ms = ledger.charge_request(plan.api_key, us, connection.now_ms)
    until_ms = connection.mute(throttle_ms) if throttle_ms > 0 else 0
    if usage_counters is not None:
        count_time(connection, usage_counters, us, max(until_ms - connection.now_ms, 0))
    return until_ms


def count_time(connection: Charged, usage_counters: UsageCounters, us: float, throttle_ms: int) -> None:
    """Count the time that was charged, as this broker is taken to be slower or faster than the model."""
    usage_counters.timed(us * connection.quotas.percent_per_us * US_PER_PERCENT)
    if throttle_ms > 0:
        usage_counters.throttled(REQUEST, throttle_ms)


def count_request(
    connection: Charged, plan: Plan, usage_counters: UsageCounters, length: int, *, answered: bool
) -> None:
    """Count a request of this frame length, all of which is here."""
    charged = length if plan.api_key == _PRODUCE else 0
    usage_counters.arrived(LENGTH_BYTES + length, charged, connection.now_ms)
    if not answered:
        usage_counters.over()


def sent(connection: Charged, usage_counters: UsageCounters, length: int) -> None:
    """Count a response of Weir's own, with its length prefix, which goes out now."""
    usage_counters.answered(length, 0, connection.now_ms)
    usage_counters.over()


class LocalResponse:
    """The accounting of a request that is not simply forwarded: Weir answers it, or makes a query for it."""

    __slots__ = ("_connection", "_ledger", "_plan", "_until_ms", "_us", "usage_counters")

    def __init__(
        self,
        connection: Charged,
        plan: Plan,
        us: float,
        ledger: ClientLedger | None,
        usage_counters: UsageCounters | None,
    ) -> None:
        """Begin with a request that has cost `us` so far; `ledger` is None if its time is not charged."""
        self._connection = connection
        self._plan = plan
        self._us = us
        self._ledger = ledger
        self.usage_counters = usage_counters
        """Where usage is counted, if it is."""
        self._until_ms = 0
        """Time (ms) until which the longest throttle of these charges lasts."""

    def charge(self, length: int) -> None:
        """Charge the request itself, whose response has this frame length."""
        self._charge(self._plan, self._us, length)

    def charge_question(self, api_key: int, version: int, request_length: int, length: int) -> None:
        """Charge a question to the broker that was asked on the client's behalf."""
        plans = self._connection.plans
        plan = plans.get((api_key, version)) or plans.make(api_key, version)
        if plan.cost is not None:
            self._charge(plan, plan.cost.begun_us(request_length), length)

    def _charge(self, plan: Plan, us: float, length: int) -> None:
        if self._ledger is not None:
            until_ms = charge_request_time(
                self._connection, plan, us, self._ledger, self.usage_counters, length
            )
            self._until_ms = max(self._until_ms, until_ms)

    def settled(self, frame: bytes) -> bytes:
        """Return the client's response frame, which goes out now, as `told`; count it."""
        if self.usage_counters is not None:
            sent(self._connection, self.usage_counters, len(frame))
        return self.told(frame)

    def told(self, frame: bytes) -> bytes:
        """Return the client's response frame with the rest of the throttle time written into it."""
        report_ms = self._until_ms - self._connection.now_ms
        return reported(frame, self._plan, report_ms) if report_ms > 0 else frame


def reported(frame: bytes, plan: Plan, report_ms: int) -> bytes:
    """Return a response frame of Weir's own that tells at least this throttle time, where its version can.

    A request in a version that nobody knows is answered in version 0, which cannot (ApiVersions).
    """
    known = versions(plan.api_key)
    if known is None or plan.version not in known:
        return frame
    throttle = _throttle_place(plan)
    body = response_body(
        frame, 0, len(frame), flexible=response_header_version(plan.api_key, plan.version) == 1
    )
    if throttle is None or body == INCOMPLETE:
        return frame
    told = bytearray(frame)
    position = throttle.locate(told, body, len(told), True)
    if position == INCOMPLETE or throttle.read(told, position) >= report_ms:
        return frame
    throttle.write(told, position, report_ms)
    return bytes(told)


def _throttle_place(plan: Plan) -> FieldOffset | None:
    """Return where the client's version has the field; `plan.throttle` is where the broker's has it."""
    return field_offset(response_type(plan.api_key), plan.version, "throttle_time_ms")
