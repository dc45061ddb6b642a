"""Charge request time (KIP-124): the time that requests cost the broker's threads. Count it as usage, too.

A broker charges the time that its threads have spent. A proxy estimates that time (`quotas.costs.cost`): most
of it when the request is forwarded, and the part that depends on the response's length when the response
begins to arrive. The whole estimate is charged at that second moment. All requests are charged, also those
that Weir answers itself, except those that brokers exempt: the SASL exchange, produce with acks=0, and
requests between brokers.

A broker takes one request of a connection at a time. Weir does so only for clients that are near their quota.
Other clients may have several requests in flight; all these are forwarded before the first of them is
charged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from weir.protocol.api import ApiKey, response_header_version, versions
from weir.protocol.codec import response_type
from weir.protocol.framing import INCOMPLETE, LENGTH_BYTES, response_body
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset
from weir.proxy.connection.effects import Clock  # fields' types: mypyc wants them at run time
from weir.proxy.connection.usage_counters import REQUEST, UsageCounters
from weir.proxy.handlers.plan import Plan
from weir.quotas import ClientLedger, QuotaKey
from weir.quotas.limiters.request_time import US_PER_PERCENT

if TYPE_CHECKING:
    from weir.proxy.connection.client import Client
    from weir.proxy.handlers.plans import Plans


_PRODUCE: Final = ApiKey.PRODUCE.value
S = TypeVar("S")


class ChargedConnection(Protocol):
    """The fields and methods of a connection that this module uses to charge request time."""

    @property
    def now_ms(self) -> int:
        """Current time (ms)."""

    clock: Clock
    """Clock of the transport, which tells the current time in microseconds."""

    @property
    def plans(self) -> Plans:
        """Plans (rules for processing each API version) for the versions that the broker speaks."""

    @property
    def client(self) -> Client:
        """Client of the connection, and the quotas of its broker; its usage may be recorded."""

    def state_of(self, kind: type[S]) -> S:
        """Return the state that a capability keeps for the connection."""

    def mute(self, throttle_ms: int, quota: QuotaKey) -> int:
        """Take no request from the client for `throttle_ms` (ms) because of this quota; return the time (ms)
        at which the throttle ends.
        """


def charge_request_time(
    connection: ChargedConnection,
    plan: Plan,
    us: float,
    ledger: ClientLedger,
    usage_counters: UsageCounters | None,
    length: int,
) -> int:
    """Charge a request that has cost `us` (µs) so far and whose response has `length` bytes (without the
    length prefix). Mute the connection if the client exceeds its quota. Return the time (ms) until which
    the throttle lasts; 0 for no throttle.
    """
    if plan.cost is not None:
        us += plan.cost.us_per_response_byte * length
    throttle_ms = ledger.charge_request(plan.api_key, us, connection.now_ms)
    until_ms = connection.mute(throttle_ms, QuotaKey.REQUEST_PERCENTAGE) if throttle_ms > 0 else 0
    if usage_counters is not None:
        count_time(connection, usage_counters, us, max(until_ms - connection.now_ms, 0))
    return until_ms


def count_time(
    connection: ChargedConnection, usage_counters: UsageCounters, us: float, throttle_ms: int
) -> None:
    """Count the charged time `us` (µs) as usage, scaled by the broker's speed
    (`BrokerQuotas.percent_per_us`). Count also the throttle time (ms) that the charge has caused; 0 for no
    throttle.
    """
    usage_counters.timed(us * connection.client.quotas.percent_per_us * US_PER_PERCENT)
    if throttle_ms > 0:
        usage_counters.throttled(REQUEST, throttle_ms)


def count_exempt(connection: ChargedConnection, plan: Plan, us: float, length: int) -> None:
    """Count a request that brokers exempt, which has cost `us` (µs) so far and whose response has `length`
    bytes; 0 without a response. Kafka's `exempt-request-time` (ClientRequestQuotaManager).
    """
    if plan.cost is not None:
        us += plan.cost.us_per_response_byte * length
    scaled_us = us * connection.client.quotas.percent_per_us * US_PER_PERCENT
    connection.plans.counters.exempt_us[connection.client.quotas.node_id] += round(scaled_us)


def count_request(
    connection: ChargedConnection, plan: Plan, usage_counters: UsageCounters, length: int, *, answered: bool
) -> None:
    """Count as usage a request of `length` bytes (without the length prefix) that has arrived completely.
    `answered` is False for acks=0: the request then also counts as finished, because no response will come.
    """
    charged = length if plan.api_key == _PRODUCE else 0
    usage_counters.arrived(LENGTH_BYTES + length, charged, connection.now_ms)
    if not answered:
        usage_counters.over()


def reported(frame: bytes, plan: Plan, report_ms: int) -> bytes:
    """Return a response frame of Weir's own in which the throttle time is at least `report_ms` (ms).

    A frame without such a field is returned unchanged. So is the response to a request in a version that Weir
    does not know: Weir answers it in version 0 (ApiVersions), which has no such field.
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
    if position == INCOMPLETE:
        return frame
    throttle.raise_to(told, position, report_ms)
    return bytes(told)


def _throttle_place(plan: Plan) -> FieldOffset | None:
    """Return the offset of `throttle_time_ms` in the client's version, None if that version has no such
    field. `plan.throttle` is the offset in the broker's version.
    """
    return field_offset(response_type(plan.api_key), plan.version, "throttle_time_ms")
