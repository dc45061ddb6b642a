"""Metrics of the quota table and its store."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.control.quota_registry import QuotaRegistry
from proxy.control.stores.store_health import RESULTS, StoreHealth


def families(quota_registry: QuotaRegistry, store: StoreHealth) -> Iterator[Metric]:
    """Yield the metrics; those of the quota file only if the store is a file."""
    yield family.gauge("weir_quotas_configured", "Quota values in force.", len(quota_registry.table))
    yield family.counter(
        "weir_quota_table_changes", "Number of changes of the quota table.", quota_registry.changes
    )
    if store.name == "file":
        yield from _file(store)
    rows = (((store.name,), float(store.last_was_good)),)
    yield family.gauges(
        "weir_quota_store_available", "0 while the quota store cannot be read.", ("store",), rows
    )
    yield family.gauge(
        "weir_quota_store_last_change_timestamp_seconds",
        "Unix time of the last alteration stored by Weir; 0 if none.",
        store.last_change_s,
    )
    yield family.counters(
        "weir_quota_alterations",
        "Alterations of quotas over the wire, by result.",
        ("result",),
        (((result,), store.alterations[result]) for result in RESULTS),
    )
    yield family.counter(
        "weir_quota_requests_denied",
        "Requests about client quotas from clients that are no admins.",
        store.denied,
    )
    yield family.counter(
        "weir_quota_topic_foreign_records",
        "Records of the quota topic without a Weir's mark.",
        store.foreign_records(),
    )


def _file(store: StoreHealth) -> Iterator[Metric]:
    yield family.gauge(
        "weir_quota_file_last_reload_successful",
        "0 if the quota file in place was refused.",
        store.last_was_good,
    )
    yield family.gauge(
        "weir_quota_file_last_reload_success_timestamp_seconds",
        "Unix time of the last successful read of the quota file.",
        store.last_good_s,
    )
