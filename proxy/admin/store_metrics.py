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
        "weir_quota_table_changes", "How often other quotas came into force.", quota_registry.changes
    )
    if store.name == "file":
        yield from _file(store)
    rows = (((store.name,), float(store.last_was_good)),)
    yield family.gauges(
        "weir_quota_store_available", "0 while the quota store cannot be read.", ("store",), rows
    )
    yield family.gauge(
        "weir_quota_store_last_change_timestamp_seconds",
        "When Weir last stored an alteration; 0 if it has not.",
        store.last_change_s,
    )
    yield family.counters(
        "weir_quota_alterations",
        "Alterations of quotas over the wire, by what became of them.",
        ("result",),
        (((result,), store.alterations[result]) for result in RESULTS),
    )
    yield family.counter(
        "weir_quota_requests_denied",
        "Requests about client quotas from those who are no admins.",
        store.denied,
    )


def _file(store: StoreHealth) -> Iterator[Metric]:
    yield family.gauge(
        "weir_quota_file_last_reload_successful",
        "0 if the quota file in place was refused.",
        store.last_was_good,
    )
    yield family.gauge(
        "weir_quota_file_last_reload_success_timestamp_seconds",
        "When the quota file was last read without a mistake.",
        store.last_good_s,
    )
