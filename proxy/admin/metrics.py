"""List every metric: name, description, labels and source. docs/reference/metrics.md has the table.

Scrapes read plain integers that the proxy counts anyway.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric

from weir.protocol import schema
from weir.proxy.admin import (
    quota_metrics,
    refusals,
    sharing_metrics,
    storage_metrics,
    topic_count_metrics,
    worker_metrics,
)
from weir.proxy.admin.entities import broker_label
from weir.proxy.admin.exposition import WEIR, Row
from weir.proxy.admin.replication import metrics as replication_metrics
from weir.proxy.build import VERSION, build
from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.events.hub import Hub
from weir.proxy.control.events.records import KINDS
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import RESULTS, StoreHealth
from weir.proxy.control.supervisor import Task
from weir.proxy.control.usage.tally import OF_USAGE, Kind, Loss, Tally
from weir.proxy.counters import Counters
from weir.proxy.net.latency import Histogram, Latencies
from weir.proxy.net.reactor import TURN_BOUNDS_US, Turns
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.server.server import Server, Workers
from weir.quotas.connections import ConnectionQuotas
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.table.quota_kind import RECORDED

THROTTLING: Final = [*RECORDED]
"""Quotas that throttle connections."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that the metrics are read from."""

    server: Server
    workers: Workers
    quota_registry: QuotaRegistry
    store: StoreHealth
    now_ms: Callable[[], int]
    """Function that returns the time (ms) on the clock that budgets use."""
    usage: Tally | None = None
    """Counts of usage records; None if usage is not recorded."""
    replication: ReplicationQuotas | None = None
    """Replication quotas; None without replication listeners."""
    events: Tally | None = None
    """Counts of events in their topic; None without an events topic."""
    sharing: UsageSharing | None = None
    """Sharing of quotas with other Weirs; None without it."""
    quota_manager: QuotaManager | None = None
    """Object that alters quotas; None if nothing can."""
    refused: Counter[str] = field(default_factory=Counter)
    """Number of refused requests to the admin endpoint, by reason (`refusals`)."""


def families(sources: Sources, *, ready: bool) -> Iterator[Metric | None]:
    """Yield Weir's own metrics; yield None where the caller may serve sockets."""
    server, registry = sources.server, sources.quota_registry
    yield from _process(server, sources.workers, ready=ready)
    yield refusals.family(sources.refused)
    yield _turns(server.turns)
    yield from _latencies(server.latencies)
    yield from _sessions(server)
    yield _throttled(server)
    yield from _store(registry, sources.store)
    for shadow in (False, True):
        yield from quota_metrics.families(registry, sources.now_ms(), shadow=shadow)
    yield from topic_count_metrics.families(server.topic_counter.counts)
    yield from storage_metrics.families(server.storage_reader.budgets)
    yield from _connections(registry.connections)
    yield from authentications(server.counters)
    yield from _tls(server.config.tls.files)
    if sources.replication is not None:
        yield from replication_metrics.families(sources.replication, sources.now_ms())
    yield from _events(server.events)
    if sources.events is not None:
        yield from _events_topic(sources.events)
    if sources.sharing is not None:
        yield from sharing_metrics.families(sources.sharing)
    if sources.usage is not None:
        yield from usage_records(sources.usage)


def _process(server: Server, workers: Workers, *, ready: bool) -> Iterator[Metric]:
    versions = {"version": VERSION, "build": build(), "python": platform.python_version()}
    yield InfoMetricFamily("weir_build", "Version and build of Weir, and version of Python.", value=versions)
    yield WEIR.gauge("ready", "1 if /readyz answers 200.", ready)
    yield WEIR.counter("log_lines_lost", "Log lines that Weir could not write.", server.log_lines_lost)
    nodes, port = server.address_book.nodes, server.address_book.port
    yield WEIR.gauge("brokers", "Brokers for which Weir has a listener.", len(nodes))
    yield WEIR.gauge(
        "brokers_left_out",
        "Brokers that Weir removes from responses because it has no listener for them.",
        len(server.address_book.left_out.node_ids()),
    )
    yield WEIR.gauge(
        "broker_info",
        "Always 1. The labels give each broker's address, and Weir's port for the broker.",
        [((str(node_id), str(address), str(port(node_id))), 1) for node_id, address in sorted(nodes.items())],
        *("broker", "upstream", "port"),
    )
    yield WEIR.gauge(
        "broker_up",
        "0 while Weir cannot reach the broker, or the other brokers do not list it.",
        {str(node_id): server.broker_states.is_up(node_id) for node_id in sorted(nodes)},
        "broker",
    )
    yield WEIR.gauge(
        "problem",
        "1 for each problem in /api/status.",
        dict.fromkeys(server.health.names(), 1),
        "problem",
    )
    failures = server.counters.task_failures
    yield from worker_metrics.families(server, workers)
    yield WEIR.counter(
        "task_failures",
        "Failures of Weir's background tasks.",
        {task.value: failures[task] for task in Task},
        "task",
    )


def _turns(turns: Turns) -> Metric:
    counts, below = [], turns.number - turns.longer
    for bound_us, count in zip(TURN_BOUNDS_US, turns.within, strict=True):
        below += count
        counts.append((str(bound_us / 1_000_000), float(below)))
    return HistogramMetricFamily(
        "weir_turn_seconds",
        "Duration of each pass of the event loop over the ready sockets.",
        buckets=[*counts, ("+Inf", float(turns.number))],
        sum_value=turns.busy_us / 1_000_000,
    )


def _latencies(latencies: Latencies) -> Iterator[Metric]:
    forward = HistogramMetricFamily(
        "weir_request_forward_seconds",
        "Weir's share of the latency: time to forward a sampled request.",
    )
    _add(forward, [], latencies.forward)
    answers = HistogramMetricFamily(
        "weir_broker_answer_seconds",
        "The broker's share of the latency: time until the broker began to answer a sampled request.",
        labels=["api"],
    )
    for api, histogram in latencies.answers.items():
        _add(answers, [api], histogram)
    yield from (forward, answers)


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    bounds = [*(str(bound_us / 1_000_000) for bound_us in histogram.bounds_us), "+Inf"]
    below = [float(count) for count in accumulate(histogram.within)]
    buckets = list(zip(bounds, below, strict=True))
    family.add_metric(labels, buckets=buckets, sum_value=histogram.sum_us / 1_000_000)


def _sessions(server: Server) -> Iterator[Metric]:
    counters = server.counters
    yield WEIR.gauge("sessions_open", "Open client connections.", counters.sessions_open)
    yield WEIR.gauge(
        "buffered_bytes",
        "Bytes read but not yet forwarded, summed over all connections.",
        server.gauges.buffered_bytes,
    )
    yield WEIR.counter(
        "reading_stops",
        "How often Weir stopped reading from clients because of buffered_bytes_max.",
        counters.reading_stops,
    )
    yield WEIR.counter(
        "sessions_opened", "Client connections for which Weir reached a broker.", counters.sessions_opened
    )
    yield WEIR.counter(
        "sessions_closed",
        "Client connections that have ended or were refused.",
        list(_closed(server)),
        *("reason", "broker"),
    )
    requests = sorted(counters.requests.items())
    yield WEIR.counter(
        "requests",
        "Requests with an API and a version known to Weir.",
        [((_api_name(api), str(number)), count) for (api, number), count in requests],
        *("api", "version"),
    )
    yield WEIR.counter(
        "received_bytes",
        "Bytes received, including length prefixes.",
        {"clients": counters.bytes_from_clients.total(), "brokers": counters.bytes_from_brokers.total()},
        "from",
    )
    yield WEIR.counter(
        "requests_not_understood",
        "Requests with an API or a version unknown to Weir.",
        counters.requests_not_understood,
    )
    yield WEIR.counter(
        "wrong_nodes",
        "How often a client reached the wrong broker and had to bootstrap again.",
        counters.wrong_nodes,
    )
    yield WEIR.counter(
        "requests_unread",
        "Requests that Weir could not read and forwarded unchanged.",
        {_api_name(api): count for api, count in sorted(counters.requests_unread.items())},
        "api",
    )
    yield WEIR.counter(
        "protected_topic_requests_refused",
        "Requests that Weir refused because they would alter Weir's own topics.",
        {_api_name(api): count for api, count in sorted(counters.protected_refused.items())},
        "api",
    )
    yield WEIR.counter(
        "requests_not_offered",
        "Requests in API versions that Weir does not offer with its current settings.",
        counters.not_offered.total(),
    )
    yield WEIR.counter(
        "topics_unnamed",
        "How often a broker returned no name for a topic id.",
        counters.topics_unnamed,
    )
    yield WEIR.counter("throttles", "How often Weir throttled a client.", counters.throttles)
    yield WEIR.counter(
        "exempt_request_seconds",
        "Estimated request time of requests that brokers exempt from request quotas.",
        {broker_label(node_id): microseconds / 1e6 for node_id, microseconds in counters.exempt_us.items()},
        "broker",
    )


def _throttled(server: Server) -> Metric:
    """Return the number of throttled connections by quota (`queue-size` of Kafka's ClientQuotaManager)."""
    counts = dict.fromkeys(THROTTLING, 0) | server.gauges.throttled
    return WEIR.gauge(
        "throttled_connections",
        "Connections waiting for a throttle time to end.",
        {"replication" if quota is None else quota.value: count for quota, count in counts.items()},
        "quota",
    )


def _closed(server: Server) -> Iterator[Row]:
    """Yield the number of closed connections by reason and broker, also if the number is 0: Prometheus'
    function `rate` ignores a counter's first increase if the counter did not exist before.
    """
    counts = server.counters.closed_at
    nodes: list[int | None] = [None, *sorted(server.address_book.nodes)]
    for node_id in nodes:
        for reason in CloseReason:
            yield (reason.value, broker_label(node_id)), counts[reason, node_id]


def _api_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as `Produce`; the key as text if unknown."""
    found = schema.api(api_key)
    return str(api_key) if found is None else found.name


def _store(quota_registry: QuotaRegistry, store: StoreHealth) -> Iterator[Metric]:
    """Yield the metrics of the quota table and its store. Metrics of the quota file are yielded only if the
    file is the store.
    """
    yield WEIR.gauge("quotas_configured", "Quota values in force.", len(quota_registry.table))
    yield WEIR.counter("quota_table_changes", "Changes to the quota table.", quota_registry.changes)
    if store.name == "file":
        yield WEIR.gauge(
            "quota_file_last_reload_successful",
            "0 if Weir has refused the current quota file.",
            store.last_was_good,
        )
        yield WEIR.gauge(
            "quota_file_last_reload_success_timestamp_seconds",
            "Unix time at which Weir last read the quota file successfully.",
            store.last_good_s,
        )
    yield WEIR.gauge(
        "quota_store_available",
        "0 while Weir cannot read the quota store.",
        {store.name: store.last_was_good},
        "store",
    )
    yield WEIR.gauge(
        "quota_store_last_change_timestamp_seconds",
        "Unix time at which Weir last stored a quota alteration; 0 if never.",
        store.last_change_s,
    )
    yield WEIR.counter(
        "quota_alterations",
        "Quota alterations that clients requested with Kafka's protocol.",
        {str(result): store.alterations[result] for result in RESULTS},
        "result",
    )
    yield WEIR.counter(
        "quota_requests_denied",
        "Requests about client quotas that Weir denied because the client is not a quota admin.",
        store.denied,
    )
    yield WEIR.counter(
        "quota_topic_foreign_records",
        "Records in the quota topic without the header that Weir adds to its records.",
        store.foreign_records(),
    )


def _connections(quotas: ConnectionQuotas) -> Iterator[Metric]:
    """Yield the metrics of connection quotas (KIP-612). Refused connections are in
    `weir_sessions_closed_total`.
    """
    limited = {
        "bootstrap" if node_id is None else broker_label(node_id): budget
        for node_id, budget in quotas.listeners()
    }
    yield WEIR.counter(
        "connections_late",
        "Connections that Weir accepted late because of a connection rate.",
        {listener: budget.throttled for listener, budget in limited.items()},
        "listener",
    )
    yield WEIR.counter(
        "connections_late_seconds",
        "Sum of the delays of late connections; a delay is at most one quota window.",
        {listener: budget.throttle_ms_total / 1000 for listener, budget in limited.items()},
        "listener",
    )
    yield WEIR.gauge(
        "connection_addresses", "IP addresses whose connection rates are in memory.", quotas.addresses
    )


def authentications(counters: Counters) -> Iterator[Metric]:
    """Yield results of SASL exchanges by mechanism, and the number of clients without a visible name."""
    ends = {"success": counters.authentications_succeeded, "failure": counters.authentications_failed}
    yield WEIR.counter(
        "authentications",
        "SASL exchanges that brokers accepted or refused.",
        [
            ((mechanism, result), count)
            for result, by_mechanism in ends.items()
            for mechanism, count in sorted(by_mechanism.items())
        ],
        *("mechanism", "result"),
    )
    yield WEIR.counter(
        "authentications_hidden",
        "Accepted SASL exchanges that hid the client's name from Weir.",
        counters.names_hidden,
    )


def _tls(all_files: list[ContextOfFiles]) -> Iterator[Metric]:
    """Yield the metrics of the configured certificate and key files; without TLS, metrics with no samples."""
    yield WEIR.gauge(
        "tls_files_last_reload_successful",
        "0 while Weir refuses changed TLS files.",
        {files.name: not files.outage for files in all_files},
        "files",
    )
    yield WEIR.counter(
        "tls_files_refused",
        "How often Weir could not use changed TLS files.",
        {files.name: files.refused for files in all_files},
        "files",
    )
    yield WEIR.gauge(
        "tls_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate in force expires.",
        {files.name: files.expires_s for files in all_files if files.expires_s},
        "files",
    )


def _events(hub: Hub) -> Iterator[Metric]:
    yield WEIR.counter("events", "Published events.", {kind: hub.published[kind] for kind in KINDS}, "kind")
    yield WEIR.gauge("event_readers", "Connected readers of /api/events.", hub.readers)
    yield WEIR.counter(
        "event_readers_closed",
        "Readers of /api/events that Weir disconnected because they were too slow.",
        hub.closed_readers,
    )


def _events_topic(tally: Tally) -> Iterator[Metric]:
    yield WEIR.gauge(
        "events_topic_available", "0 while Weir cannot write events to their topic.", not tally.failure
    )
    yield WEIR.counter(
        "events_topic_written", "Events that the cluster has acknowledged.", tally.written[Kind.EVENT]
    )
    yield WEIR.counter(
        "events_topic_dropped", "Events that Weir did not write to the topic.", sum(tally.dropped.values())
    )


def usage_records(tally: Tally) -> Iterator[Metric]:
    yield WEIR.counter(
        "usage_records",
        "Usage records written to files, or acknowledged by the cluster.",
        {kind.value: tally.written[kind] for kind in OF_USAGE},
        "kind",
    )
    yield WEIR.counter(
        "usage_records_dropped",
        "Usage records that Weir did not write.",
        {loss.value: tally.dropped[loss] for loss in Loss},
        "reason",
    )
    yield WEIR.counter("usage_written_bytes", "Bytes of written usage records.", tally.written_bytes)
    yield WEIR.counter("usage_files_finished", "Usage files that Weir has finished.", tally.finished_files)
    yield WEIR.counter(
        "usage_files_deleted", "Usage files deleted because of usage_keep_bytes.", tally.deleted_files
    )
    yield WEIR.gauge(
        "usage_queue_records",
        "Usage records that wait to be written or acknowledged.",
        tally.queued + tally.unacknowledged,
    )
    yield WEIR.gauge("usage_available", "0 while Weir cannot write usage records.", not tally.failure)
    yield WEIR.gauge(
        "usage_last_write_timestamp_seconds",
        "Unix time at which Weir last wrote usage records; 0 if never.",
        tally.last_written_s,
    )
