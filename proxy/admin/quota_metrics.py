"""Metrics of budgets: those of enforced entries, and as `weir_shadow_*` those of shadow entries."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias

from prometheus_client.core import Metric

from weir.proxy.admin.entities import (
    BudgetReadings,
    broker_label,
    byte_rates,
    labels,
    mutations,
    read,
    request_times,
    sharers,
    topics,
)
from weir.proxy.admin.exposition import SHADOW, WEIR, Families, Row
from weir.proxy.admin.request_time import api_name, seconds
from weir.proxy.control.budgets import usage_of
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.control.snapshots.values import Values
from weir.quotas import Budget, MutationBudget, Tags
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.registry import LimiterTotals

BROKER_QUOTA: Final = ("broker", "quota")
SHARERS: Final = ("user", "client_id", "client_id_prefix", "group")
ENTITY: Final = (*BROKER_QUOTA, *SHARERS)
TOPIC: Final = (*BROKER_QUOTA, "topic")
SERIES_MAX: Final = 2000
"""Maximum number of (entity, API) pairs whose request time is shown. Most clients use five to ten APIs."""
API_SLICE: Final = 100
"""Number of budgets whose request time by API is read in one step, which takes one or two milliseconds."""

Of: TypeAlias = Callable[[Values], float]
"""Function that takes the values of a budget and returns one of them, such as its rate."""
Rows: TypeAlias = Callable[[Of], list[Row]]
"""Function that calls an `Of` with the values of every budget, and returns the results as samples with the
budgets' labels.
"""


def families(quota_registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> Iterator[Metric | None]:
    """Yield the metrics of enforced or shadow quotas; yield None where the caller may serve sockets."""
    make = SHADOW if shadow else WEIR
    rates: BudgetReadings[Budget] = BudgetReadings()
    yield from read(quota_registry, byte_rates, now_ms, rates, shadow=shadow)
    times: BudgetReadings[RequestBudget] = BudgetReadings()
    yield from read(quota_registry, request_times, now_ms, times, shadow=shadow)
    yield from _quotas(make, rates, times)
    yield from _entities(make, rates.shown, times.shown)
    yield from _api_times(make, times)
    mutated: BudgetReadings[MutationBudget] = BudgetReadings()
    yield from read(quota_registry, mutations, now_ms, mutated, shadow=shadow)
    yield from _mutations(make, mutated)
    yield from _mutation_entities(make, mutated.shown)
    yield from _topics(make, topics(quota_registry, now_ms, shadow=shadow))


def _quotas(
    make: Families, rates: BudgetReadings[Budget], times: BudgetReadings[RequestBudget]
) -> Iterator[Metric]:
    def of(
        reading: BudgetReadings[Budget] | BudgetReadings[RequestBudget],
        value: Callable[[LimiterTotals], float],
    ) -> list[Row]:
        return [(pot.labels, value(total)) for pot, total in reading.totals.items()]

    def of_both(value: Callable[[LimiterTotals], float]) -> list[Row]:
        return of(rates, value) + of(times, value)

    charged = attrgetter("charged")
    yield make.counter(
        "quota_bytes", "Sum of the bytes charged to entities.", of(rates, charged), *BROKER_QUOTA
    )
    yield make.counter(
        "quota_request_seconds",
        "Sum of the estimated request time charged to entities.",
        of(times, lambda total: seconds(total.charged)),
        *BROKER_QUOTA,
    )
    yield from _throttles(make, "quota", of_both, *BROKER_QUOTA)
    counts = [(pot.labels, count) for pot, count in (rates.counts | times.counts).items()]
    yield make.gauge("quota_entities", "Budgets in memory.", counts, *BROKER_QUOTA)
    yield make.gauge(
        "quota_entities_hidden",
        "Budgets without metrics of their own.",
        rates.hidden + times.hidden,
    )


def _throttles(
    make: Families, whose: str, values: Callable[[Callable[..., float]], list[Row] | float], *labels: str
) -> Iterator[Metric]:
    """Yield two metrics: the number of throttled requests, and the sum of their throttle times. `values`
    takes a function that reads a `LimiterTotals` or a `Values`, and returns the samples.
    """
    yield make.counter(
        f"{whose}_throttles",
        "Requests answered with a throttle time.",
        values(lambda counts: counts.throttled),
        *labels,
    )
    yield make.counter(
        f"{whose}_throttle_seconds",
        "Sum of the throttle times in responses.",
        values(lambda counts: counts.throttle_ms / 1000),
        *labels,
    )


def _of(shown: list[Values], labels_of: Callable[[Values], tuple[str, ...]]) -> Rows:
    """Return a function that makes samples of the budgets' values, with these labels."""
    return lambda value: [(labels_of(values), value(values)) for values in shown]


def _sharers(values: Values) -> tuple[str, ...]:
    return sharers(values.names)


def _topic(values: Values) -> tuple[str, ...]:
    return broker_label(values.broker), values.quota.value, values.names.topic


def _entities(make: Families, rates: list[Values], times: list[Values]) -> Iterator[Metric]:
    bytes_of, times_of, both_of = (_of(shown, labels) for shown in (rates, times, rates + times))
    yield make.counter(
        "entity_bytes", "Bytes charged to the entity.", bytes_of(attrgetter("charged")), *ENTITY
    )
    yield make.counter(
        "entity_request_seconds",
        "Estimated request time charged to the entity.",
        times_of(lambda entity: seconds(entity.charged)),
        *ENTITY,
    )
    yield from _rate_and_limit(make, "entity", "bytes_per_second", bytes_of, *ENTITY)
    yield from _rate_and_limit(make, "entity", "percent", times_of, *ENTITY)
    yield make.gauge(
        "entity_utilization",
        "Current rate divided by the limit; 0 without a limit.",
        both_of(lambda entity: usage_of(entity.rate, entity.limit)),
        *ENTITY,
    )
    yield from _throttles(make, "entity", both_of, *ENTITY)
    yield make.gauge(
        "entity_entry_info",
        "Always 1. The entry label names the quota entry that applies.",
        [((*labels(entity), entity.entry), 1) for entity in rates + times],
        *(*ENTITY, "entry"),
    )


def _rate_and_limit(make: Families, whose: str, unit: str, values: Rows, *labels: str) -> Iterator[Metric]:
    yield make.gauge(
        f"{whose}_rate_{unit}",
        "Current rate of charges.",
        values(attrgetter("rate")),
        *labels,
    )
    yield make.gauge(
        f"{whose}_limit_{unit}",
        "Limit; +Inf if the quota was removed.",
        values(attrgetter("limit")),
        *labels,
    )


def _api_times(make: Families, reading: BudgetReadings[RequestBudget]) -> Iterator[Metric | None]:
    """Yield the request time by budget and API, for the pairs that have used most. Yield None where the
    caller may serve sockets.
    """
    rows: list[Row] = []
    hidden = 0
    for part in slices(reading.largest, API_SLICE):
        for pot, budget in part:
            whose = (broker_label(pot.node_id), *sharers(Tags(*map(shortened, budget.tags))))
            rows += [((*whose, api_name(api)), seconds(percent)) for api, percent in budget.by_api.items()]
        hidden += max(len(rows) - SERIES_MAX, 0)
        if len(rows) > SERIES_MAX:
            rows = heapq.nlargest(SERIES_MAX, rows, key=itemgetter(1))
        yield None
    yield make.counter(
        "request_time_seconds",
        "Estimated request time charged to the entity for the API.",
        rows,
        "broker",
        *SHARERS,
        "api",
    )
    yield make.gauge("request_time_hidden", "(entity, API) pairs without a counter of their own.", hidden)


def _mutations(make: Families, reading: BudgetReadings[MutationBudget]) -> Iterator[Metric]:
    total = next(iter(reading.totals.values()), LimiterTotals())
    yield make.counter("mutation_partitions", "Partitions charged to mutation quotas.", total.charged)
    yield make.counter(
        "mutation_refused_topics", "Topics that Weir refused with THROTTLING_QUOTA_EXCEEDED.", total.refused
    )
    yield from _throttles(make, "mutation", lambda value: value(total))
    yield make.gauge("mutation_entities", "Mutation budgets in memory.", sum(reading.counts.values()))
    yield make.gauge(
        "mutation_entities_hidden", "Mutation budgets without metrics of their own.", reading.hidden
    )


def _mutation_entities(make: Families, shown: list[Values]) -> Iterator[Metric]:
    values = _of(shown, _sharers)
    yield make.counter(
        "mutation_entity_partitions",
        "Partitions charged to the entity.",
        values(attrgetter("charged")),
        *SHARERS,
    )
    yield make.counter(
        "mutation_entity_refused_topics",
        "Topics that Weir refused with THROTTLING_QUOTA_EXCEEDED.",
        values(attrgetter("refused")),
        *SHARERS,
    )
    yield make.gauge(
        "mutation_entity_tokens",
        "Tokens left in the bucket; negative while the bucket is overdrawn.",
        values(attrgetter("tokens")),
        *SHARERS,
    )
    yield make.gauge(
        "mutation_entity_limit_partitions_per_second",
        "Limit; +Inf if the quota was removed.",
        values(attrgetter("limit")),
        *SHARERS,
    )
    yield from _throttles(make, "mutation_entity", values, *SHARERS)


def _topics(make: Families, shown: list[Values]) -> Iterator[Metric]:
    values = _of(shown, _topic)
    yield make.counter(
        "topic_bytes", "Bytes of records charged to the topic.", values(attrgetter("charged")), *TOPIC
    )
    yield from _rate_and_limit(make, "topic", "bytes_per_second", values, *TOPIC)
    yield from _throttles(make, "topic", values, *TOPIC)
