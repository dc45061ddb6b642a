"""The JSON of `GET /request-time`, also read by `weir quotas explain`."""

from __future__ import annotations

from typing import Final

import msgspec

PATH: Final = "/request-time"
USER: Final = "user"
"""The principal's name, without type; default ANONYMOUS."""
CLIENT_ID: Final = "client_id"
ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"


class ApiTime(msgspec.Struct, frozen=True):
    """Request time of one API."""

    api: str
    """Kafka's name of the API."""
    seconds: float
    """Estimated seconds of one thread."""
    percent: float
    """Percent of all that was charged to the budget."""


class BudgetTime(msgspec.Struct, frozen=True):
    """A budget of the client at one broker. Others may share it."""

    broker: str
    """Its node id, `unknown`, or `cluster` for a budget of all brokers."""
    mode: str
    """enforce or shadow, as in the quota file."""
    user: str
    client_id: str
    client_id_prefix: str
    """The clients that share the budget; empty names do not distinguish."""
    seconds: float
    """Seconds charged in total; starts at 0 again an hour after the last charge."""
    rate: float
    """Current rate in percent of one thread."""
    limit: float | None
    throttles: int
    throttle_seconds: float
    apis: list[ApiTime]
    """The most expensive API first."""


class Report(msgspec.Struct, frozen=True):
    """A client's request time."""

    user: str
    client_id: str
    budgets: list[BudgetTime]
    """Empty if the client has no `request_percentage` quota, or has sent no request."""
