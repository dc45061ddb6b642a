"""Requests that Weir cannot read: forwarded unchanged, and counted.

The broker closes the connection, with Weir or without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from protocol import schema
from proxy.handlers.decisions import Decision, Forward, Wait

if TYPE_CHECKING:
    from proxy.counters import Counters

log = structlog.get_logger("weir.requests")


def passed_unread(decision: Decision | Wait) -> Decision | Wait:
    """Return the decision for a request whose body cannot be read."""
    return decision.but(unread=True) if isinstance(decision, Forward) else decision


def count_unread(counters: Counters, api_key: int, version: int, user: str, client: str) -> None:
    """Count a request; log the 1st, 10th, 100th, ... of its API."""
    counters.requests_unread[api_key] += 1
    count = counters.requests_unread[api_key]
    if count == 10 ** (len(str(count)) - 1):
        known = schema.api(api_key)
        name = str(api_key) if known is None else known.name
        log.warning(
            "requests passed unread", api=name, version=version, count=count, user=user, client=client
        )
