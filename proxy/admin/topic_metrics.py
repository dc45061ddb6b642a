"""Metrics of per-topic rates: enforced ones, and as `weir_shadow_topic_*` shadow ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import Final

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.admin.entities import CLUSTER, ENTITIES_MAX, Where, broker_label
from proxy.control.quota_registry import QuotaRegistry
from quotas import Budget
from quotas.topics import TopicRates

LABELS: Final = ("broker", "quota", "topic")


def families(quota_registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> Iterator[Metric]:
    """Yield the metrics of the topics charged most."""
    rows = nlargest(ENTITIES_MAX, _budgets(quota_registry, shadow=shadow), key=lambda row: row[1].charged)
    prefix, says = ("weir_shadow_topic_", "Shadow rates, as if enforced: ") if shadow else ("weir_topic_", "")

    def values(of: Callable[[Budget], float]) -> list[family.Row]:
        return [(labels, of(budget)) for labels, budget in rows]

    yield family.counters(
        prefix + "bytes", says + "Bytes of records charged.", LABELS, values(lambda b: b.charged)
    )
    yield family.gauges(
        prefix + "rate_bytes_per_second",
        says + "Current rate, as compared with the limit.",
        LABELS,
        values(lambda b: b.rate(now_ms)),
    )
    yield family.gauges(
        prefix + "limit_bytes_per_second", says + "The rate it may have.", LABELS, values(lambda b: b.limit)
    )
    yield family.counters(
        prefix + "throttles",
        says + "Requests that made somebody wait.",
        LABELS,
        values(lambda b: b.throttled),
    )
    yield family.counters(
        prefix + "throttle_seconds",
        says + "Sum of the throttle times in responses.",
        LABELS,
        values(lambda b: b.throttle_ms_total / 1000),
    )


def _budgets(registry: QuotaRegistry, *, shadow: bool) -> Iterator[tuple[tuple[str, str, str], Budget]]:
    everywhere: list[tuple[Where, Iterable[TopicRates]]] = [
        (node_id, quotas.topics or ()) for node_id, quotas in registry.brokers.items()
    ]
    for where, topics in [*everywhere, (CLUSTER, registry.cluster.topics)]:
        for rates in topics:
            for budget in rates.budgets(shadow=shadow):
                yield (broker_label(where), rates.key.value, budget.tags.topic), budget
