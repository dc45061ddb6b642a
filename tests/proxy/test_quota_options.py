"""Pacing and scope in the running proxy: from settings and files to connections, and in metrics once."""

from __future__ import annotations

import pytest

from tests.proxy.metrics_page import Page, registry_of, scraped, server
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.server.server import Server

__all__ = ["server"]  # a fixture

TOGETHER = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000
request_percentage = 50
scope = "cluster"

[[quota]]
topic = "logs"
producer_byte_rate = 1000
scope = "cluster"
"""


def charge(registry: QuotaRegistry, node_id: int, units: float) -> int:
    quotas = registry.of(node_id)
    ledger = quotas.ledger("ANONYMOUS", "app", 0)
    assert ledger.produce is not None
    ledger.charge_request(3, 1000, 0)
    assert quotas.topics is not None
    quotas.topics.produce.charge({b"logs": 100}, 0)
    return ledger.produce.charge(units, 0)


def test_metrics_have_a_budget_of_the_cluster_once(server: Server) -> None:
    registry = registry_of(TOGETHER)
    assert [charge(registry, node_id, 6000) for node_id in (0, 1)] == [0, 2000]
    page = scraped(server, registry)
    app = {"broker": "cluster", "quota": "producer_byte_rate", "user": "", "client_id": "app"}
    assert page.value("weir_entity_bytes_total", **app) == 12_000
    assert only(page, "weir_entity_bytes_total") == 12_000
    assert only(page, "weir_topic_bytes_total") == 200
    assert only(page, "weir_request_time_seconds_total") == pytest.approx(0.002)
    totals = page.rows("weir_quota_bytes_total")
    assert sum(totals.values()) == 12_000
    assert page.value("weir_quota_throttles_total", broker="cluster", quota="producer_byte_rate") == 1


def only(page: Page, name: str) -> float:
    (row,) = page.rows(name).values()
    return row
