"""Every metric: name, description, labels and source. docs/operations.md has the same table.

Values are plain integers that the proxy keeps anyway; scrapes read them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

from protocol import schema
from proxy.admin import (
    authentication_metrics,
    connection_metrics,
    family,
    quota_metrics,
    store_metrics,
    tls_metrics,
    topic_metrics,
    usage_metrics,
)
from proxy.close_reasons import CloseReason
from proxy.control.quota_registry import QuotaRegistry
from proxy.control.stores.store_health import StoreHealth
from proxy.control.supervisor import Task
from proxy.control.usage.tally import Tally
from proxy.net.reactor import TURN_BOUNDS_US, Turns
from proxy.server.server import Server


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of all metrics."""

    server: Server
    quota_registry: QuotaRegistry
    store: StoreHealth
    now_ms: Callable[[], int]
    """The budgets' clock."""
    usage: Tally | None = None
    """Counts of usage records; None if usage is not recorded."""


def families(sources: Sources, *, ready: bool) -> Iterator[Metric | None]:
    """Yield every metric of Weir's own, and None where sockets may be served."""
    yield from _process(sources, ready=ready)
    yield _turns(sources.server.turns)
    yield _tasks(sources.server)
    yield from _sessions(sources.server)
    yield from store_metrics.families(sources.quota_registry, sources.store)
    for shadow in (False, True):
        yield from quota_metrics.families(sources.quota_registry, sources.now_ms(), shadow=shadow)
        yield from topic_metrics.families(sources.quota_registry, sources.now_ms(), shadow=shadow)
    yield from connection_metrics.families(sources.server.connection_limiter.quotas)
    yield from authentication_metrics.families(sources.server.counters)
    yield from tls_metrics.families(sources.server.config.tls.files)
    if sources.usage is not None:
        yield from usage_metrics.families(sources.usage)


def _process(sources: Sources, *, ready: bool) -> Iterator[Metric]:
    server = sources.server
    build = {"version": version("kafka-weir"), "python": platform.python_version()}
    yield InfoMetricFamily("weir_build", "Version of Weir and of Python.", value=build)
    yield family.gauge("weir_ready", "1 if /readyz answers 200.", ready)
    yield family.gauge("weir_brokers", "Known brokers; each has a listener.", len(server.address_book.nodes))
    known = GaugeMetricFamily(
        "weir_broker_info",
        "Each broker's own address, and Weir's port for it.",
        labels=["broker", "upstream", "port"],
    )
    for node_id, address in sorted(server.address_book.nodes.items()):
        known.add_metric(
            [str(node_id), str(address), str(server.config.advertised_listeners.port(node_id))], 1
        )
    yield known


def _turns(turns: Turns) -> Metric:
    counts, below = [], turns.number - turns.longer
    for bound_us, count in zip(TURN_BOUNDS_US, turns.within, strict=True):
        below += count
        counts.append((str(bound_us / 1_000_000), float(below)))
    return HistogramMetricFamily(
        "weir_turn_seconds",
        "Time for which the only thread that moves bytes served sockets before it looked for others.",
        buckets=[*counts, ("+Inf", float(turns.number))],
        sum_value=turns.busy_us / 1_000_000,
    )


def _tasks(server: Server) -> Metric:
    failures = server.counters.task_failures
    return family.counters(
        "weir_task_failures",
        "Failures of Weir's own tasks, which were restarted.",
        ("task",),
        (((task.value,), failures[task]) for task in Task),
    )


def _sessions(server: Server) -> Iterator[Metric]:
    counters = server.counters
    yield family.gauge("weir_sessions_open", "Client connections now.", counters.sessions_open)
    yield family.counter(
        "weir_sessions_opened", "Client connections that reached a broker.", counters.sessions_opened
    )
    yield family.counters(
        "weir_sessions_closed",
        "Client connections closed or refused.",
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
        "Bytes received, frame headers included.",
        ("from",),
        ((("clients",), from_clients), (("brokers",), from_brokers)),
    )
    yield family.counter(
        "weir_requests_not_understood",
        "Requests of an API or version that Weir's schemas lack.",
        counters.requests_not_understood,
    )
    yield family.counters(
        "weir_requests_unread",
        "Requests that Weir could not read, forwarded unchanged.",
        ("api",),
        (((_api_name(api),), count) for api, count in sorted(counters.requests_unread.items())),
    )
    yield family.counters(
        "weir_protected_topic_requests_refused",
        "Refused requests that would write to Weir's own topics or change them.",
        ("api",),
        (((_api_name(api),), count) for api, count in sorted(counters.protected_refused.items())),
    )
    yield family.counter("weir_throttles", "Number of times that a client was throttled.", counters.throttles)


def _api_name(api_key: int) -> str:
    """Return Kafka's name of an API, as in its own metrics: `Produce`."""
    found = schema.api(api_key)
    return str(api_key) if found is None else found.name
