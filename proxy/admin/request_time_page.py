"""`GET /request-time?user=..&client_id=..`: a client's request time by API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter

from proxy.admin.entities import CLUSTER, broker_label, sharers
from proxy.admin.request_time_report import (
    CLIENT_ID,
    ENFORCED,
    SHADOW,
    USER,
    ApiTime,
    BudgetTime,
    Report,
)
from proxy.admin.request_times import api_name, seconds
from proxy.control.quota_registry import QuotaRegistry
from proxy.handlers.sasl.identity import ANONYMOUS
from quotas.limiters.budgets import UNLIMITED
from quotas.request_time import RequestBudget


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
