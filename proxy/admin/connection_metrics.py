"""Metrics of connection quotas (KIP-612); `weir_sessions_closed_total` counts refused connections."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.admin.entities import broker_label
from quotas.connections import ConnectionBudget, ConnectionQuotas

PROCESS = "all"
"""The label of the rate shared by all listeners."""


def families(quotas: ConnectionQuotas) -> Iterator[Metric]:
    """Yield the number of delayed connections, and their delays."""
    rows = list(_limited(quotas))
    yield family.counters(
        "weir_connections_late",
        "Connections accepted late.",
        ("listener",),
        (((listener,), budget.throttled) for listener, budget in rows),
    )
    yield family.counters(
        "weir_connections_late_seconds",
        "Sum of the delays of late connections; each delay is at most a window.",
        ("listener",),
        (((listener,), budget.throttle_ms_total / 1000) for listener, budget in rows),
    )
    yield family.gauge(
        "weir_connection_addresses", "IP addresses whose connection rate is kept.", quotas.addresses
    )


def _limited(quotas: ConnectionQuotas) -> Iterator[tuple[str, ConnectionBudget]]:
    if quotas.total is not None:
        yield PROCESS, quotas.total
    for node_id, budget in quotas.listeners():
        yield "bootstrap" if node_id is None else broker_label(node_id), budget
