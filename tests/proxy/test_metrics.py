"""What a scrape says: the budgets' own figures, whoever chose the names, in well-formed text."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from tests.proxy.metrics_page import PARSERS, Page, registry_of, said, scraped, server
from tests.proxy.supervised import NoWorkers
from tests.quotas.changes import put_in_force
from weir.proxy.addresses import Address
from weir.proxy.admin.entities import ENTITIES_MAX, SLICE, BudgetReadings, Pot, byte_rates, mutations, read
from weir.proxy.admin.exposition import LINES, render
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.names import NAME_CHARS_MAX
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas import Budget, MutationBudget, QuotaKey, QuotaTable, parse
from weir.quotas.registry import IDLE_MS_MAX

__all__ = ["server"]  # a fixture

PRODUCED, FETCHED = Pot(0, "producer_byte_rate"), Pot(0, "consumer_byte_rate")


def reading_of(registry: QuotaRegistry, now_ms: int = 0, most: int = ENTITIES_MAX) -> BudgetReadings[Budget]:
    reading: BudgetReadings[Budget] = BudgetReadings()
    for _step in read(registry, byte_rates, now_ms, reading, most):
        pass
    return reading


def charge(
    registry: QuotaRegistry, client_id: str, produced: float, now_ms: int = 0, node_id: int | None = 0
) -> int:
    budget = registry.of(node_id).ledger("ANONYMOUS", client_id, now_ms).produce
    assert budget is not None
    return budget.charge(produced, now_ms)


# Figures


@pytest.mark.parametrize("accept", PARSERS)
def test_metrics_of_an_entity_equal_its_budget(server: Server, accept: str) -> None:
    """12 MB within 10.4 s at 1 MB/s: the example of docs/reference/quotas.md."""
    registry = registry_of()
    assert (charge(registry, "app", 4e6), charge(registry, "app", 8e6, 400)) == (0, 1600)
    page = scraped(server, registry, now_ms=400, accept=accept)
    app = {"broker": "0", "quota": "producer_byte_rate", "user": "", "client_id": "app"}
    assert page.value("weir_entity_bytes_total", **app) == 12e6
    assert page.value("weir_entity_rate_bytes_per_second", **app) == pytest.approx(12e6 / 10.4)
    assert page.value("weir_entity_limit_bytes_per_second", **app) == 1e6
    assert page.value("weir_entity_utilization", **app) == pytest.approx(12e6 / 10.4 / 1e6)
    assert page.value("weir_entity_entry_info", entry="client-id <default>", **app) == 1
    assert page.value("weir_entity_throttles_total", **app) == 1
    assert page.value("weir_entity_throttle_seconds_total", **app) == 1.6
    both = {"broker": "0", "quota": "producer_byte_rate"}
    assert page.value("weir_quota_bytes_total", **both) == 12e6
    assert page.value("weir_quota_throttles_total", **both) == 1
    assert page.value("weir_quota_throttle_seconds_total", **both) == 1.6
    assert page.value("weir_quota_entities", **both) == 1


def test_metrics_show_the_processs_counters(server: Server) -> None:
    counters = server.counters
    counters.sessions_open, counters.sessions_opened = 3, 5
    counters.closed_at = Counter({(CloseReason.CLIENT_RESET, None): 2, (CloseReason.BROKER_RESET, 3): 4})
    server.address_book.nodes[3] = Address("kafka-3", 9092)
    counters.requests_not_understood, counters.throttles, counters.topics_unnamed = 7, 11, 5
    counters.requests_unread[3] = 2
    counters.bytes_from_clients[1], counters.bytes_from_brokers[1] = 19, 23
    counters.requests.update({(0, 9): 13, (18, 3): 17})
    page = scraped(server)
    assert (page["weir_sessions_open"], page["weir_sessions_opened_total"]) == (3, 5)
    assert page.value("weir_sessions_closed_total", reason="client_reset", broker="unknown") == 2
    assert page.value("weir_sessions_closed_total", reason="broker_reset", broker="3") == 4
    assert page.value("weir_sessions_closed_total", reason="internal_error", broker="3") == 0
    assert len(page.rows("weir_sessions_closed_total")) == 2 * len(CloseReason)
    assert (page["weir_requests_not_understood_total"], page["weir_throttles_total"]) == (7, 11)
    assert page["weir_topics_unnamed_total"] == 5
    assert page.value("weir_requests_unread_total", api="Metadata") == 2
    assert page.value("weir_received_bytes_total", **{"from": "clients"}) == 19
    assert page.value("weir_received_bytes_total", **{"from": "brokers"}) == 23
    assert page.value("weir_requests_total", api="Produce", version="9") == 13
    assert page.value("weir_requests_total", api="ApiVersions", version="3") == 17
    assert page["process_open_fds"] > 0
    assert page["process_cpu_seconds_total"] > 0


def test_metrics_show_throttled_connections_by_quota_and_exempt_time(server: Server) -> None:
    by_quota = {"producer_byte_rate": 2, "consumer_byte_rate": 1, "request_percentage": 0}
    producers = [QuotaKey.PRODUCER_BYTE_RATE] * 2
    server.gauges.throttled.update([*producers, QuotaKey.CONSUMER_BYTE_RATE, None])
    server.counters.exempt_us.update({2: 1_500_000, None: 10})
    page = scraped(server, now_ms=1000)
    assert page.rows("weir_throttled_connections") == {
        said({"quota": quota}): count
        for quota, count in {
            **by_quota,
            "controller_mutation_rate": 0,
            "old_read_byte_rate": 0,
            "replication": 1,
        }.items()
    }
    assert page.rows("weir_exempt_request_seconds_total") == {
        said({"broker": "2"}): 1.5,
        said({"broker": "unknown"}): 0.00001,
    }


def test_metrics_show_the_latency_of_weir_and_of_brokers(server: Server) -> None:
    latencies = server.latencies
    latencies.forward.note(60)
    latencies.forward.note(70_000)
    latencies.note_answer(1, 450_000)
    page = scraped(server)
    assert page.value("weir_request_forward_seconds_bucket", le="0.0001") == 1
    assert page.value("weir_request_forward_seconds_count") == 2
    assert page.value("weir_request_forward_seconds_sum") == pytest.approx(0.07006)
    assert page.value("weir_broker_answer_seconds_bucket", api="Fetch", le="0.2") == 0
    assert page.value("weir_broker_answer_seconds_bucket", api="Fetch", le="0.5") == 1


def test_metrics_show_the_quota_tables_size_age_and_health(server: Server) -> None:
    now_s = 100.0
    state = StoreHealth(lambda: now_s)
    registry = registry_of()
    sources = Sources(server, NoWorkers(), registry, state, lambda: 0)

    def page() -> Page:
        return Page(trio.run(render, families(sources, ready=True), "")[0])

    def seen() -> tuple[float, ...]:
        found = page()
        return (
            found["weir_quotas_configured"],
            found["weir_quota_table_changes_total"],
            found["weir_quota_file_last_reload_successful"],
            found["weir_quota_file_last_reload_success_timestamp_seconds"],
        )

    assert seen() == (2, 0, 1, 100)
    now_s = 200.0
    state.outage.record("unreadable")
    assert seen() == (2, 0, 0, 100)
    put_in_force(registry, QuotaTable())
    state.succeeded(0)
    assert seen() == (0, 1, 1, 200)


# Mutations

MUTATORS = '[[quota]]\nclient_id = "<default>"\ncontroller_mutation_rate = 5\n'


def mutate(
    registry: QuotaRegistry, client_id: str, *costs: int, now_ms: int = 0, node_id: int | None = 0
) -> int:
    """A strict request; the throttle time."""
    budget = registry.of(node_id).mutations.budget("ANONYMOUS", client_id, now_ms)
    assert budget is not None
    request = budget.begin(strict=True)
    for cost in costs:
        request.admit(cost, now_ms)
    return request.finish(now_ms)


@pytest.mark.parametrize("accept", PARSERS)
def test_metrics_of_a_mutating_entity_equal_its_cluster_wide_budget(server: Server, accept: str) -> None:
    """The example of KIP-599: 560 partitions at 5/s, of a burst of 500, leave 12 s to wait."""
    registry = QuotaRegistry(parse(MUTATORS), num_samples=100)
    assert mutate(registry, "app", 560, node_id=0) == 0
    assert mutate(registry, "app", 1, 1, node_id=1) == 12_000
    mutate(registry, "other", 7)
    page = scraped(server, registry, now_ms=1000, accept=accept)
    app = {"user": "", "client_id": "app"}
    assert page.value("weir_mutation_entity_partitions_total", **app) == 560
    assert page.value("weir_mutation_entity_tokens", **app) == -55
    assert page.value("weir_mutation_entity_limit_partitions_per_second", **app) == 5
    assert page.value("weir_mutation_entity_throttles_total", **app) == 1
    assert page.value("weir_mutation_entity_throttle_seconds_total", **app) == 12
    assert page.value("weir_mutation_entity_refused_topics_total", **app) == 2
    assert page["weir_mutation_partitions_total"] == 567
    assert page["weir_mutation_throttles_total"] == 1
    assert page["weir_mutation_throttle_seconds_total"] == 12
    assert page["weir_mutation_refused_topics_total"] == 2
    assert (page["weir_mutation_entities"], page["weir_mutation_entities_hidden"]) == (2, 0)
    assert page.rows("weir_entity_bytes_total") == {}


def test_many_thousand_mutating_entities_are_read_in_steps() -> None:
    registry = QuotaRegistry(parse(MUTATORS))
    for number in range(20_000):
        mutate(registry, f"app-{number}", number)
    reading: BudgetReadings[MutationBudget] = BudgetReadings()
    steps = sum(1 for _ in read(registry, mutations, 0, reading))
    assert steps >= 20_000 // SLICE
    assert {entity.charged for entity in reading.shown} == set(range(20_000 - ENTITIES_MAX, 20_000))
    assert (sum(reading.counts.values()), reading.hidden) == (20_000, 20_000 - ENTITIES_MAX)
    assert sum(total.charged for total in reading.totals.values()) == sum(range(20_000))


# Totals


def test_metric_totals_never_decrease_when_budgets_expire() -> None:
    registry, charged = registry_of(), 0.0
    for now_ms in range(0, 4 * IDLE_MS_MAX, 97_003):
        client_id = f"app-{now_ms % 7}"
        charge(registry, client_id, 10.0, now_ms)
        charged += 10
        sum(registry.expire(now_ms + 29_000))
        assert reading_of(registry, now_ms).totals[PRODUCED].charged == charged


# Names that clients choose


def test_invented_client_ids_cannot_make_a_page_longer(server: Server) -> None:
    registry = registry_of('[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 1000000\n')
    for number in range(2 * ENTITIES_MAX):
        charge(registry, f"app-{number}", number)
    page = scraped(server, registry)
    shown = page.rows("weir_entity_bytes_total")
    assert set(shown.values()) == set(range(ENTITIES_MAX, 2 * ENTITIES_MAX)), "the largest are shown"
    assert len(page.rows("weir_entity_rate_bytes_per_second")) == ENTITIES_MAX
    assert page.value("weir_quota_entities", broker="0", quota="producer_byte_rate") == 2 * ENTITIES_MAX
    assert page["weir_quota_entities_hidden"] == ENTITIES_MAX
    assert sum(page.rows("weir_quota_bytes_total").values()) == sum(range(2 * ENTITIES_MAX))


LONG = 32_767
HOSTILE = [
    'quote" } 1\n',
    "back\\slash",
    "line\nweir_sessions_open 999",
    "# EOF\n",
    "\r\n",
    "nul\0",
    "ünïcödé 日本",
    b"invalid \xff utf-8".decode("utf-8", "replace"),
    "lone \ud800 surrogate",
    "lone ? surrogate",
    "x" * LONG,
    "x" * (LONG - 1),
    "é" * LONG,
    "x" * NAME_CHARS_MAX,
]


@pytest.mark.parametrize("accept", PARSERS)
def test_metric_labels_of_hostile_names_are_escaped_and_distinct(server: Server, accept: str) -> None:
    registry = registry_of()
    for number, name in enumerate(HOSTILE):
        charge(registry, name, 1.0 + number)
    page = scraped(server, registry, accept=accept)
    labels = {
        value: dict(row)["client_id"] for row, value in page.rows("weir_entity_bytes_total").items() if value
    }
    assert len(set(labels.values())) == len(HOSTILE)
    assert page["weir_sessions_open"] == 0
    for number, name in enumerate(HOSTILE):
        label = labels[1.0 + number]
        if len(name) <= NAME_CHARS_MAX and "\ud800" not in name:
            assert label == name
        assert len(label) <= NAME_CHARS_MAX + 40


# The text


def some_family(kind: str, samples: int) -> Metric:
    family: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily("weir_things", "Some # things.", labels=["n"])
        if kind == "counter"
        else GaugeMetricFamily("weir_things", "Some # things.", labels=["n"])
    )
    for number in range(samples):
        family.add_metric([f"# {number}\n"], number)
    return family


class Whole:
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


@pytest.mark.parametrize("accept", ["", *PARSERS])
@pytest.mark.parametrize("kind", ["counter", "gauge"])
@pytest.mark.parametrize("samples", [0, 1, LINES, LINES + 1, 3 * LINES + 7])
def test_a_metrics_page_rendered_in_parts_equals_the_whole_page(accept: str, kind: str, samples: int) -> None:
    encode, content_type = choose_encoder(accept)
    expected = encode(Whole(some_family(kind, samples)))
    text, told = trio.run(render, iter([some_family(kind, samples), None]), accept)
    own = b"".join(line for line in text.splitlines(keepends=True) if b"process_" not in line)
    assert (own, told) == (expected, content_type)
