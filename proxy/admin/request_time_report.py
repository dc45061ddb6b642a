"""What `GET /request-time` answers, in JSON: read by `weir quotas explain`, and by whoever likes."""

from __future__ import annotations

from typing import Final

import msgspec

PATH: Final = "/request-time"
USER: Final = "user"
"""The name of a client's principal, without type; without it, ANONYMOUS."""
CLIENT_ID: Final = "client_id"
ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"


class ApiTime(msgspec.Struct, frozen=True):
    """What requests of one API have cost."""

    api: str
    """Kafka's name."""
    seconds: float
    """Of one thread, estimated."""
    percent: float
    """Of all that was charged to the budget."""


class BudgetTime(msgspec.Struct, frozen=True):
    """A budget that the client draws on, at one broker. Others may share it."""

    broker: str
    """Its node id, `unknown`, or `cluster` for a budget of all brokers."""
    mode: str
    """enforce or shadow, as in the quota file."""
    user: str
    client_id: str
    client_id_prefix: str
    """Who shares it; empty where the quota does not distinguish."""
    seconds: float
    """All that was ever charged; it begins anew an hour after the last charge."""
    rate: float
    """Percent of one thread, now."""
    limit: float | None
    throttles: int
    throttle_seconds: float
    apis: list[ApiTime]
    """The dearest first."""


class Report(msgspec.Struct, frozen=True):
    """The request time of a client."""

    user: str
    client_id: str
    budgets: list[BudgetTime]
    """Empty if it has no `request_percentage`, or sent no request yet."""
