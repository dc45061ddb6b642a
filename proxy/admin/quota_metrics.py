"""What is exposed of budgets: those that are enforced, and in the same shape, as `weir_shadow_*`, those of
shadow entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.admin.entities import Entity, Pot, Reading, broker_label, read
from proxy.admin.mutation_entities import MutationEntity, MutationReading, read_mutations
from proxy.quota_book import QuotaBook
from quotas.budgets import Totals

BROKER_QUOTA: Final = ("broker", "quota")
SHARERS: Final = ("user", "client_id", "client_id_prefix")
ENTITY: Final = (*BROKER_QUOTA, *SHARERS)


@dataclass(frozen=True, slots=True)
class _Side:
    """How the metrics of one side are called, and explained."""

    prefix: str
    says: str

    def counters(
        self, name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[family.Row]
    ) -> Metric:
        return family.counters(self.prefix + name, self.says + meaning, labels, rows)

    def gauges(self, name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[family.Row]) -> Metric:
        return family.gauges(self.prefix + name, self.says + meaning, labels, rows)

    def counter(self, name: str, meaning: str, value: float) -> Metric:
        return family.counter(self.prefix + name, self.says + meaning, value)

    def gauge(self, name: str, meaning: str, value: float) -> Metric:
        return family.gauge(self.prefix + name, self.says + meaning, value)


_ENFORCED: Final = _Side("weir_", "")
_SHADOW: Final = _Side("weir_shadow_", "Shadow quotas, as if enforced: ")


def families(book: QuotaBook, now_ms: int, *, shadow: bool) -> Iterator[Metric | None]:
    """Yield the metrics of one side; None is a place to let others work."""
    side = _SHADOW if shadow else _ENFORCED
    reading = Reading()
    yield from read(book, now_ms, reading, shadow=shadow)
    yield from _quotas(side, reading)
    yield from _entities(side, reading.shown)
    mutations = MutationReading()
    yield from read_mutations(book, now_ms, mutations, shadow=shadow)
    yield from _mutations(side, mutations)
    yield from _mutation_entities(side, mutations.shown)


def _quotas(side: _Side, reading: Reading) -> Iterator[Metric]:
    def totals(name: str, meaning: str, of: Callable[[Totals], float]) -> Metric:
        rows = ((_pot_labels(pot), of(total)) for pot, total in reading.totals.items())
        return side.counters(name, meaning, BROKER_QUOTA, rows)

    yield totals("quota_bytes", "Bytes charged to any quota.", lambda total: total.charged)
    yield totals("quota_throttles", "Charges answered with a throttle time.", lambda total: total.throttled)
    yield totals("quota_throttle_seconds", "Their throttle times.", lambda total: total.throttle_ms / 1000)
    counts = ((_pot_labels(pot), count) for pot, count in reading.counts.items())
    yield side.gauges("quota_entities", "Budgets remembered.", BROKER_QUOTA, counts)
    yield side.gauge("quota_entities_hidden", "Budgets without metrics of their own.", reading.hidden)


def _entities(side: _Side, shown: list[Entity]) -> Iterator[Metric]:
    def counters(name: str, meaning: str, of: Callable[[Entity], float]) -> Metric:
        return side.counters(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    def gauges(name: str, meaning: str, of: Callable[[Entity], float]) -> Metric:
        return side.gauges(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    yield counters("entity_bytes", "Bytes charged.", lambda entity: entity.charged)
    yield gauges(
        "entity_rate_bytes_per_second", "What is compared with the limit.", lambda entity: entity.rate
    )
    yield gauges(
        "entity_limit_bytes_per_second",
        "The quota; +Inf if it was removed.",
        lambda entity: entity.limit,
    )
    yield counters(
        "entity_throttles", "Charges answered with a throttle time.", lambda entity: entity.throttled
    )
    yield counters(
        "entity_throttle_seconds", "Their throttle times.", lambda entity: entity.throttle_ms / 1000
    )


def _mutations(side: _Side, reading: MutationReading) -> Iterator[Metric]:
    total = reading.totals
    yield side.counter("mutation_partitions", "Partitions charged to any mutation quota.", total.charged)
    yield side.counter("mutation_refused_topics", "Topics refused with error 89.", total.refused)
    yield side.counter(
        "mutation_throttles", "Mutation requests answered with a throttle time.", total.throttled
    )
    yield side.counter("mutation_throttle_seconds", "Their throttle times.", total.throttle_ms / 1000)
    yield side.gauge("mutation_entities", "Mutation budgets remembered.", reading.count)
    yield side.gauge(
        "mutation_entities_hidden", "Mutation budgets without metrics of their own.", reading.hidden
    )


def _mutation_entities(side: _Side, shown: list[MutationEntity]) -> Iterator[Metric]:
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
        "Their throttle times.",
        lambda entity: entity.throttle_ms / 1000,
    )


def _pot_labels(pot: Pot) -> tuple[str, str]:
    return broker_label(pot.node_id), pot.quota
