"""Requests under way: one record each, from the last byte of the request to the first of its response."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from protocol.framing import LENGTH_BYTES
from proxy.connection.charges import (  # fields' types: mypyc wants them at run time
    Charged,
    LocalResponse,
    charge_request_time,
    count_time,
)
from proxy.connection.usage_counters import UsageCounters
from proxy.handlers.broker_query import RunningQuery
from proxy.handlers.deferred import Deferred
from proxy.handlers.plan import Plan

if TYPE_CHECKING:
    from quotas import ClientLedger


class Kind(IntEnum):
    """Who answers, and what is to be done then."""

    PLAIN = 0
    """The broker; nothing is charged and nobody waits for it."""
    CHARGED = 1
    """The broker; the response is charged, or tells a throttle time, or its time is charged."""
    LOCAL = 2
    """Weir, with `reply`."""
    DEFERRED = 3
    """Weir, once `deferred` has its answer."""
    QUERY = 4
    """The broker, and the answer is for `query`."""
    TOKEN = 5
    """The broker, with a bare SASL token."""


PLAIN: Final = Kind.PLAIN.value
CHARGED: Final = Kind.CHARGED.value
LOCAL: Final = Kind.LOCAL.value
DEFERRED: Final = Kind.DEFERRED.value
QUERY: Final = Kind.QUERY.value
TOKEN: Final = Kind.TOKEN.value


class RequestInFlight:
    """One request; reused by its connection, so nobody keeps it. `Inbound` fills in the fields up to
    `usage_counters` for a request that goes to the broker.
    """

    __slots__ = (
        "correlation_id",
        "cost_us",
        "deferred",
        "kind",
        "ledger",
        "local",
        "plan",
        "query",
        "reply",
        "time_ledger",
        "until_ms",
        "usage_counters",
    )

    def __init__(
        self,
        plan: Plan,
        correlation_id: int = 0,
        kind: int = PLAIN,
        usage_counters: UsageCounters | None = None,
    ) -> None:
        """Begin with a request that has cost nothing."""
        self.kind = kind
        self.correlation_id = correlation_id
        self.plan = plan
        self.ledger: ClientLedger | None = None
        """The client's budgets, if its response is charged in bytes."""
        self.until_ms = 0
        """Time (ms) until which the throttle lasts that the request has caused; 0 for none."""
        self.cost_us = 0.0
        """Request time (µs of one thread) that the request has cost so far."""
        self.time_ledger: ClientLedger | None = None
        """The client's budgets, if its request time is charged; None once it was."""
        self.usage_counters = usage_counters
        """Where usage is counted, if it is."""
        self.reply = b""
        self.deferred: Deferred | None = None
        self.query: RunningQuery | None = None
        self.local: LocalResponse | None = None
        """The accounting of a deferred response, or of the request that the query is made for."""

    def tell(self, until_ms: int) -> None:
        """Have the response tell a throttle that lasts until `until_ms` (ms)."""
        self.kind = CHARGED
        if until_ms > self.until_ms:
            self.until_ms = until_ms

    def empty(self, until_ms: int) -> None:
        """Have the response, which has lost its records, tell a throttle until `until_ms` (ms), and charge it
        no bytes.
        """
        self.ledger = None
        self.tell(until_ms)

    def begin_response(self, connection: Charged, length: int, *, charged: bool = True) -> None:
        """Count the response, of this frame length, which begins, and charge the request's time: each once.

        `charged` says whether the response is charged in bytes.
        """
        plan, usage = self.plan, connection.client.usage
        usage_counters, self.usage_counters = self.usage_counters, None
        ledger, self.time_ledger = self.time_ledger, None
        if usage_counters is not None and usage is not None:
            usage.answering(usage_counters)
            counted = (
                length - plan.flexible_response if charged and plan.on_response and ledger is not None else 0
            )
            usage_counters.answered(LENGTH_BYTES + length, counted, connection.now_ms)
        if ledger is not None:
            until_ms = charge_request_time(connection, plan, self.cost_us, ledger, usage_counters, length)
            if until_ms > self.until_ms:
                self.until_ms = until_ms

    def leave(self, connection: Charged) -> None:
        """Charge the request, whose client has gone before its response: the broker does the work all the
        same.
        """
        ledger, usage_counters = self.time_ledger, self.usage_counters
        if ledger is not None:
            throttle_ms = ledger.charge_request(self.plan.api_key, self.cost_us, connection.now_ms)
            if usage_counters is not None:
                count_time(connection, usage_counters, self.cost_us, throttle_ms)
        if usage_counters is not None:
            usage_counters.over()


SPARE_MAX: Final = 64
"""Records that a connection keeps for its next requests."""
