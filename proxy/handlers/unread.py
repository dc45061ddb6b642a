"""Requests that Weir cannot read: forwarded unchanged, and counted.

The broker cannot read such a request either, and closes the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from weir.protocol import schema
from weir.proxy.handlers.decisions import Decision, Forward, Wait

if TYPE_CHECKING:
    from weir.proxy.counters import Counters

log = structlog.get_logger("weir.requests")


def passed_unread(decision: Decision | Wait) -> Decision | Wait:
    """Return the decision. If it forwards the request, return a copy by which the request is counted as one
    whose body Weir cannot read.
    """
    return decision.but(unread=True) if isinstance(decision, Forward) else decision


def count_unread(counters: Counters, api_key: int, version: int, user: str, client: str) -> None:
    """Count a request that Weir cannot read; log the 1st, 10th, 100th, ... such request of its API."""
    counters.requests_unread[api_key] += 1
    count = counters.requests_unread[api_key]
    if count == 10 ** (len(str(count)) - 1):
        known = schema.api(api_key)
        name = str(api_key) if known is None else known.name
        log.warning(
            "requests passed unread", api=name, version=version, count=count, user=user, client=client
        )
