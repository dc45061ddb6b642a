"""A client's request time by API: `GET /request-time?user=..&client_id=..`, and its JSON.

`weir quotas explain` reads the JSON with the same types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

import msgspec

from protocol import schema
from proxy.admin.entities import CLUSTER, broker_label, sharers
from proxy.control.quota_registry import QuotaRegistry
from proxy.handlers.sasl.identity import ANONYMOUS
from quotas.limiters.budgets import UNLIMITED
from quotas.limiters.request_time import OTHER_APIS, RequestBudget

PATH: Final = "/request-time"
USER: Final = "user"
"""The principal's name, without type; default ANONYMOUS."""
CLIENT_ID: Final = "client_id"
ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"
PERCENT: Final = 100
"""Percent in a thread's second."""
OTHERS: Final = "others"


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


def report(quota_registry: QuotaRegistry, asked: Mapping[str, str], now_ms: int) -> Report:
    """Return a client's request time at every broker. Looks budgets up as connections do, but creates
    none.
    """
    user, client_id = asked.get(USER) or ANONYMOUS, asked.get(CLIENT_ID, "")
    return Report(user, client_id, list(_budgets(quota_registry, user, client_id, now_ms)))


def _budgets(registry: QuotaRegistry, user: str, client_id: str, now_ms: int) -> Iterator[BudgetTime]:
    shared: dict[str, RequestBudget] = {}
    for node_id, quotas in sorted(registry.brokers.items(), key=_unknown_last):
        both = zip((ENFORCED, SHADOW), quotas.request_budgets(user, client_id), strict=True)
        for mode, budget in both:
            if budget is not None and budget in registry.cluster.request_budgets(budget.tags):
                shared[mode] = budget
            elif budget is not None:
                yield _budget(broker_label(node_id), mode, budget, now_ms)
    for mode, budget in shared.items():
        yield _budget(CLUSTER, mode, budget, now_ms)


def _unknown_last(item: tuple[int | None, object]) -> tuple[bool, int]:
    node_id = item[0]
    return node_id is None, node_id or 0


def _budget(broker: str, mode: str, budget: RequestBudget, now_ms: int) -> BudgetTime:
    user, client_id, client_id_prefix = sharers(budget.tags)
    dearest = sorted(budget.by_api.items(), key=itemgetter(1), reverse=True)
    return BudgetTime(
        broker,
        mode,
        user,
        client_id,
        client_id_prefix,
        seconds=seconds(budget.charged),
        rate=budget.rate(now_ms),
        limit=None if budget.limit == UNLIMITED else budget.limit,
        throttles=budget.throttled,
        throttle_seconds=budget.throttle_ms_total / 1000,
        apis=[
            ApiTime(api_name(api_key), seconds(percent), 100 * percent / (budget.charged or 1))
            for api_key, percent in dearest
        ],
    )


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as `Produce`; `api_99` for unknown keys, `others` for many of
    them.
    """
    if api_key == OTHER_APIS:
        return OTHERS
    found = schema.api(api_key)
    return f"api_{api_key}" if found is None else found.name


def seconds(percent: float) -> float:
    """Return a charge in seconds of one thread."""
    return percent / PERCENT
