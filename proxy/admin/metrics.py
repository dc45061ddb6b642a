"""What is exposed: every metric's name, meaning, labels and source. docs/operations.md has the same table.

Values are plain integers that the proxy keeps anyway; they are read when somebody asks.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric

from protocol import schema
from proxy.admin import authentication_metrics, connection_metrics, family, store_metrics
from proxy.admin.entities import Entity, Pot, Reading, broker_label, read
from proxy.admin.mutation_entities import MutationEntity, MutationReading, read_mutations
from proxy.quota_book import QuotaBook
from proxy.reasons import CloseReason
from proxy.server import Server
from proxy.stores.store_state import StoreState
from quotas.budgets import Totals

BROKER_QUOTA = ("broker", "quota")
SHARERS = ("user", "client_id")
ENTITY = (*BROKER_QUOTA, *SHARERS)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from."""

    server: Server
    book: QuotaBook
    store: StoreState
    now_ms: Callable[[], int]
    """The clock of the budgets."""


def families(sources: Sources, *, ready: bool) -> Iterator[Metric | None]:
    """Yield every metric of Weir's own; None is a place to let others work."""
    yield from _process(sources, ready=ready)
    yield from _sessions(sources.server)
    yield from store_metrics.families(sources.book, sources.store)
    reading = Reading()
    yield from read(sources.book, sources.now_ms(), reading)
    yield from _quotas(reading)
    yield from _entities(reading.shown)
    mutations = MutationReading()
    yield from read_mutations(sources.book, sources.now_ms(), mutations)
    yield from _mutations(mutations)
    yield from _mutation_entities(mutations.shown)
    yield from connection_metrics.families(sources.server.gate.quotas)
    yield from authentication_metrics.families(sources.server.counters)


def _process(sources: Sources, *, ready: bool) -> Iterator[Metric]:
    server = sources.server
    build = {"version": version("kafka-weir"), "python": platform.python_version()}
    yield InfoMetricFamily("weir_build", "Version of Weir and of Python.", value=build)
    yield family.gauge("weir_ready", "1 if /readyz answers 200.", ready)
    yield family.gauge(
        "weir_brokers", "Brokers known; each has a listener of Weir's.", len(server.book.nodes)
    )
    known = GaugeMetricFamily(
        "weir_broker_info",
        "Each broker's own address, and Weir's port for it.",
        labels=["broker", "upstream", "port"],
    )
    for node_id, address in sorted(server.book.nodes.items()):
        known.add_metric([str(node_id), str(address), str(server.config.places.port(node_id))], 1)
    yield known


def _sessions(server: Server) -> Iterator[Metric]:
    counters = server.counters
    yield family.gauge("weir_sessions_open", "Client connections now.", counters.sessions_open)
    yield family.counter("weir_sessions_opened", "Sessions that reached a broker.", counters.sessions_opened)
    yield family.counters(
        "weir_sessions_closed",
        "Sessions that ended, and connections refused.",
        ("reason",),
        (((reason.value,), counters.closed[reason]) for reason in CloseReason),
    )
    yield family.counters(
        "weir_requests",
        "Requests by API and version, where Weir knows both.",
        ("api", "version"),
        (
            ((_api_name(api), str(number)), count)
            for (api, number), count in sorted(server.plans.requests().items())
        ),
    )
    from_clients, from_brokers = server.received_bytes
    yield family.counters(
        "weir_received_bytes",
        "Bytes received, heads of frames included.",
        ("from",),
        ((("clients",), from_clients), (("brokers",), from_brokers)),
    )
    yield family.counter(
        "weir_requests_not_understood",
        "Requests of an API or version that Weir has no schema for.",
        counters.requests_not_understood,
    )
    yield family.counter("weir_throttles", "How often a client was made to wait.", counters.throttles)


def _quotas(reading: Reading) -> Iterator[Metric]:
    def totals(name: str, meaning: str, of: Callable[[Totals], float]) -> Metric:
        rows = ((_pot_labels(pot), of(total)) for pot, total in reading.totals.items())
        return family.counters(name, meaning, BROKER_QUOTA, rows)

    yield totals("weir_quota_bytes", "Bytes charged to any quota.", lambda total: total.charged)
    yield totals(
        "weir_quota_throttles", "Charges answered with a throttle time.", lambda total: total.throttled
    )
    yield totals(
        "weir_quota_throttle_seconds", "Their throttle times.", lambda total: total.throttle_ms / 1000
    )
    counts = ((_pot_labels(pot), count) for pot, count in reading.counts.items())
    yield family.gauges("weir_quota_entities", "Budgets remembered.", BROKER_QUOTA, counts)
    yield family.gauge("weir_quota_entities_hidden", "Budgets without metrics of their own.", reading.hidden)


def _entities(shown: list[Entity]) -> Iterator[Metric]:
    def counters(name: str, meaning: str, of: Callable[[Entity], float]) -> Metric:
        return family.counters(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    def gauges(name: str, meaning: str, of: Callable[[Entity], float]) -> Metric:
        return family.gauges(name, meaning, ENTITY, ((entity.labels, of(entity)) for entity in shown))

    yield counters("weir_entity_bytes", "Bytes charged.", lambda entity: entity.charged)
    yield gauges(
        "weir_entity_rate_bytes_per_second", "What is compared with the limit.", lambda entity: entity.rate
    )
    yield gauges(
        "weir_entity_limit_bytes_per_second",
        "The quota; +Inf if it was removed.",
        lambda entity: entity.limit,
    )
    yield counters(
        "weir_entity_throttles", "Charges answered with a throttle time.", lambda entity: entity.throttled
    )
    yield counters(
        "weir_entity_throttle_seconds", "Their throttle times.", lambda entity: entity.throttle_ms / 1000
    )


def _mutations(reading: MutationReading) -> Iterator[Metric]:
    total = reading.totals
    yield family.counter(
        "weir_mutation_partitions", "Partitions charged to any mutation quota.", total.charged
    )
    yield family.counter("weir_mutation_refused_topics", "Topics refused with error 89.", total.refused)
    yield family.counter(
        "weir_mutation_throttles", "Mutation requests answered with a throttle time.", total.throttled
    )
    yield family.counter("weir_mutation_throttle_seconds", "Their throttle times.", total.throttle_ms / 1000)
    yield family.gauge("weir_mutation_entities", "Mutation budgets remembered.", reading.count)
    yield family.gauge(
        "weir_mutation_entities_hidden", "Mutation budgets without metrics of their own.", reading.hidden
    )


def _mutation_entities(shown: list[MutationEntity]) -> Iterator[Metric]:
    def counters(name: str, meaning: str, of: Callable[[MutationEntity], float]) -> Metric:
        return family.counters(name, meaning, SHARERS, ((entity.labels, of(entity)) for entity in shown))

    def gauges(name: str, meaning: str, of: Callable[[MutationEntity], float]) -> Metric:
        return family.gauges(name, meaning, SHARERS, ((entity.labels, of(entity)) for entity in shown))

    yield counters("weir_mutation_entity_partitions", "Partitions charged.", lambda entity: entity.charged)
    yield counters(
        "weir_mutation_entity_refused_topics",
        "Topics refused with error 89.",
        lambda entity: entity.refused,
    )
    yield gauges(
        "weir_mutation_entity_tokens",
        "Partitions left of the burst; negative while requests are refused or throttled.",
        lambda entity: entity.tokens,
    )
    yield gauges(
        "weir_mutation_entity_limit_partitions_per_second",
        "The quota; +Inf if it was removed.",
        lambda entity: entity.limit,
    )
    yield counters(
        "weir_mutation_entity_throttles",
        "Mutation requests answered with a throttle time.",
        lambda entity: entity.throttled,
    )
    yield counters(
        "weir_mutation_entity_throttle_seconds",
        "Their throttle times.",
        lambda entity: entity.throttle_ms / 1000,
    )


def _api_name(api_key: int) -> str:
    """Kafka's name, as in its own metrics: `Produce`."""
    found = schema.api(api_key)
    return str(api_key) if found is None else found.name


def _pot_labels(pot: Pot) -> tuple[str, str]:
    return broker_label(pot.node_id), pot.quota
