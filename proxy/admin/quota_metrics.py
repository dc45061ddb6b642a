"""Metrics of budgets: of enforced entries, and as `weir_shadow_*` of shadow entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import Metric

from proxy.admin.entities import Entity, Pot, Reading, broker_label, byte_rates, read, request_times
from proxy.admin.mutation_entities import MutationEntity, MutationReading, read_mutations
from proxy.admin.request_times import ApiTimes, api_times, seconds
from proxy.admin.side import ENFORCED, SHADOW, Side
from proxy.control.quota_registry import QuotaRegistry
from quotas import Budget
from quotas.registry import Totals
from quotas.request_time import RequestBudget

BROKER: Final = ("broker",)
BROKER_QUOTA: Final = (*BROKER, "quota")
SHARERS: Final = ("user", "client_id", "client_id_prefix")
ENTITY: Final = (*BROKER_QUOTA, *SHARERS)


def families(quota_registry: QuotaRegistry, now_ms: int, *, shadow: bool) -> Iterator[Metric | None]:
    """Yield the metrics of enforced or shadow quotas, and None where sockets may be served."""
    side = SHADOW if shadow else ENFORCED
    rates: Reading[Budget] = Reading()
    yield from read(quota_registry, byte_rates, now_ms, rates, shadow=shadow)
    times: Reading[RequestBudget] = Reading()
    yield from read(quota_registry, request_times, now_ms, times, shadow=shadow)
    yield from _quotas(side, rates, times)
    yield from _entities(side, rates.shown, times.shown)
    by_api = ApiTimes()
    yield from api_times(times, by_api)
    yield from _api_times(side, by_api)
    mutations = MutationReading()
    yield from read_mutations(quota_registry, now_ms, mutations, shadow=shadow)
    yield from _mutations(side, mutations)
    yield from _mutation_entities(side, mutations.shown)


def _quotas(side: Side, rates: Reading[Budget], times: Reading[RequestBudget]) -> Iterator[Metric]:
    all_totals = rates.totals | times.totals

    def counters(
        name: str, meaning: str, of: Callable[[Totals], float], totals: dict[Pot, Totals] = all_totals
    ) -> Metric:
        return side.counters(
            name, meaning, BROKER_QUOTA, ((_pot_labels(pot), of(total)) for pot, total in totals.items())
        )

    yield counters("quota_bytes", "Bytes charged to any quota.", lambda total: total.charged, rates.totals)
    yield counters(
        "quota_request_seconds",
        "Request time charged to any quota, an estimate.",
        lambda total: seconds(total.charged),
        times.totals,
    )
    yield counters(
        "quota_throttles", "Requests answered with a throttle time.", lambda total: total.throttled
    )
    yield counters(
        "quota_throttle_seconds",
        "Sum of the throttle times in responses.",
        lambda total: total.throttle_ms / 1000,
    )
    counts = ((_pot_labels(pot), count) for pot, count in (rates.counts | times.counts).items())
    yield side.gauges("quota_entities", "Budgets kept.", BROKER_QUOTA, counts)
    yield side.gauge(
        "quota_entities_hidden", "Budgets without metrics of their own.", rates.hidden + times.hidden
    )


def _entities(side: Side, rates: list[Entity], times: list[Entity]) -> Iterator[Metric]:
    def counters(name: str, meaning: str, of: Callable[[Entity], float], shown: list[Entity]) -> Metric:
        return side.counters(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    def gauges(name: str, meaning: str, of: Callable[[Entity], float], shown: list[Entity]) -> Metric:
        return side.gauges(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    yield counters("entity_bytes", "Bytes charged.", lambda entity: entity.charged, rates)
    yield counters(
        "entity_request_seconds",
        "Request time charged, an estimate.",
        lambda entity: seconds(entity.charged),
        times,
    )
    for unit, shown in (("bytes_per_second", rates), ("percent", times)):
        yield gauges(
            f"entity_rate_{unit}",
            "Current rate, as compared with the limit.",
            lambda entity: entity.rate,
            shown,
        )
        yield gauges(
            f"entity_limit_{unit}",
            "The quota; +Inf if it was removed.",
            lambda entity: entity.limit,
            shown,
        )
    yield counters(
        "entity_throttles",
        "Requests answered with a throttle time.",
        lambda entity: entity.throttled,
        rates + times,
    )
    yield counters(
        "entity_throttle_seconds",
        "Sum of the throttle times in responses.",
        lambda entity: entity.throttle_ms / 1000,
        rates + times,
    )


def _api_times(side: Side, times: ApiTimes) -> Iterator[Metric]:
    yield side.counters(
        "request_time_seconds",
        "Request time charged to an entity, by API, an estimate.",
        (*BROKER, *SHARERS, "api"),
        times.rows,
    )
    yield side.gauge(
        "request_time_hidden", "Pairs of entity and API without a counter of their own.", times.hidden
    )


def _mutations(side: Side, reading: MutationReading) -> Iterator[Metric]:
    total = reading.totals
    yield side.counter("mutation_partitions", "Partitions charged to any mutation quota.", total.charged)
    yield side.counter("mutation_refused_topics", "Topics refused with error 89.", total.refused)
    yield side.counter(
        "mutation_throttles", "Mutation requests answered with a throttle time.", total.throttled
    )
    yield side.counter(
        "mutation_throttle_seconds", "Throttle times in responses to mutations.", total.throttle_ms / 1000
    )
    yield side.gauge("mutation_entities", "Mutation budgets kept.", reading.count)
    yield side.gauge(
        "mutation_entities_hidden", "Mutation budgets without metrics of their own.", reading.hidden
    )


def _mutation_entities(side: Side, shown: list[MutationEntity]) -> Iterator[Metric]:
    def counters(name: str, meaning: str, of: Callable[[MutationEntity], float]) -> Metric:
        return side.counters(name, meaning, SHARERS, ((entity.labels, of(entity)) for entity in shown))

    def gauges(name: str, meaning: str, of: Callable[[MutationEntity], float]) -> Metric:
        return side.gauges(name, meaning, SHARERS, ((entity.labels, of(entity)) for entity in shown))

    yield counters("mutation_entity_partitions", "Partitions charged.", lambda entity: entity.charged)
    yield counters(
        "mutation_entity_refused_topics",
        "Topics refused with error 89.",
        lambda entity: entity.refused,
    )
    yield gauges(
        "mutation_entity_tokens",
        "Partitions left of the burst; negative while requests are refused or throttled.",
        lambda entity: entity.tokens,
    )
    yield gauges(
        "mutation_entity_limit_partitions_per_second",
        "The quota; +Inf if it was removed.",
        lambda entity: entity.limit,
    )
    yield counters(
        "mutation_entity_throttles",
        "Mutation requests answered with a throttle time.",
        lambda entity: entity.throttled,
    )
    yield counters(
        "mutation_entity_throttle_seconds",
        "Sum of the throttle times in responses.",
        lambda entity: entity.throttle_ms / 1000,
    )


def _pot_labels(pot: Pot) -> tuple[str, str]:
    return broker_label(pot.node_id), pot.quota
