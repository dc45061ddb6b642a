"""Requests under way: one record each, from the last byte of the request to the first of its response."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from proxy.rules.deferred import Deferred  # fields' types: mypyc wants them at run time
from proxy.rules.errand import Run
from proxy.rules.plan import Plan

if TYPE_CHECKING:
    from proxy.connection.receipts import Receipt
    from quotas import Payers


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


class RequestInFlight:
    """One request; reused by its connection, so nobody keeps it."""

    __slots__ = (
        "correlation_id",
        "cost_us",
        "deferred",
        "kind",
        "payers",
        "plan",
        "query",
        "receipt",
        "reply",
        "time_payers",
        "until_ms",
    )

    def __init__(self, plan: Plan) -> None:
        """Begin as a plain request."""
        self.kind: int = Kind.PLAIN
        self.correlation_id = 0
        self.plan = plan
        self.payers: Payers | None = None
        """The client's budgets, if its response is charged in bytes."""
        self.until_ms = 0
        """Time (ms) until which the throttle lasts that the request has caused; 0 for none."""
        self.cost_us = 0.0
        """Request time (µs of one thread) that the request has cost so far."""
        self.time_payers: Payers | None = None
        """The client's budgets, if its request time is charged; None once it was."""
        self.receipt: Receipt | None = None
        """Where usage is counted, if it is."""
        self.reply = b""
        self.deferred: Deferred | None = None
        self.query: Run | None = None


SPARE_MAX: Final = 64
"""Records that a connection keeps for its next requests."""
