"""A client's request time by API: the JSON of `GET /request-time?user=..&client_id=..`.

`weir quotas explain` reads the JSON with the same types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

import msgspec

from weir.protocol import schema
from weir.proxy.admin.entities import broker_label
from weir.proxy.control.budgets import CLUSTER
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.handlers.sasl.identity import ANONYMOUS
from weir.quotas.limiters.budgets import UNLIMITED
from weir.quotas.limiters.request_time import OTHER_APIS, RequestBudget

PATH: Final = "/request-time"
USER: Final = "user"
"""Name of the query parameter for the principal's name, given without `User:`. A request without the
parameter asks about ANONYMOUS.
"""
CLIENT_ID: Final = "client_id"
ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"
PERCENT: Final = 100
"""Amount charged to a budget for one second of one thread's time: budgets count request time in percent of a
second.
"""
OTHERS: Final = "others"


class ApiTime(msgspec.Struct, frozen=True):
    """Request time that the requests of one API have charged to a budget."""

    api: str
    """Kafka's name of the API."""
    seconds: float
    """Estimated time (s) of one broker thread for the requests of this API."""
    percent: float
    """Percentage that this API has in all time charged to the budget."""


class BudgetTime(msgspec.Struct, frozen=True):
    """Request time charged to one budget of the client at one broker. Other clients may share the budget."""

    broker: str
    """Node id of the broker; `unknown` for a broker whose id is not known yet; `cluster` for a budget of all
    brokers.
    """
    mode: str
    """Mode of the quota entry that the budget belongs to: `enforce` or `shadow`, as in the quota file."""
    user: str
    client_id: str
    client_id_prefix: str
    """Prefix of the client-ids that share the budget; empty if the budget's quota is not for a prefix. `user`
    and `client_id` narrow the clients down in the same way.
    """
    seconds: float
    """Time (s) charged to the budget since its first request. An unused budget is removed after an hour; a
    new one begins at 0.
    """
    rate: float
    """Current rate, in percent of one thread's time."""
    limit: float | None
    throttles: int
    throttle_seconds: float
    apis: list[ApiTime]
    """Request time by API, the most expensive API first."""


class RequestTimeReport(msgspec.Struct, frozen=True):
    """Request time of a client by budget and API; the content of the JSON response."""

    user: str
    client_id: str
    budgets: list[BudgetTime]
    """The client's budgets; empty if the client has no `request_percentage` quota, or has sent no request."""


def report(quota_registry: QuotaRegistry, asked: Mapping[str, str], now_ms: int) -> RequestTimeReport:
    """Return a client's request time at every broker. The client's budgets are looked up by the rules that
    also apply to its connections, but no budget is created.
    """
    user, client_id = asked.get(USER) or ANONYMOUS, asked.get(CLIENT_ID, "")
    return RequestTimeReport(user, client_id, list(_budgets(quota_registry, user, client_id, now_ms)))


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
    user, client_id, client_id_prefix, *_others = map(shortened, budget.tags)
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
    """Return Kafka's name of an API, such as `Produce`; `api_99` for an unknown key, `others` for the sum of
    many APIs.
    """
    if api_key == OTHER_APIS:
        return OTHERS
    found = schema.api(api_key)
    return f"api_{api_key}" if found is None else found.name


def seconds(percent: float) -> float:
    """Return a charge (percent of a thread's time) as time (s) of one thread."""
    return percent / PERCENT
