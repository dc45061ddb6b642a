"""Metrics of request time: what entities were charged with, by API, in seconds."""

from __future__ import annotations

import pytest

from tests.proxy.metrics_page import PARSERS, scraped, server
from weir.protocol.api import ApiKey
from weir.proxy.admin.entities import ENTITIES_MAX
from weir.proxy.admin.quota_metrics import SERIES_MAX
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.server.server import Server
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

__all__ = ["server"]  # a fixture

KEY = QuotaKey.REQUEST_PERCENTAGE
ANY_APP = Entity(client_id=DEFAULT)
APP = {"broker": "0", "client_id": "app"}
PRODUCE, METADATA = ApiKey.PRODUCE, ApiKey.METADATA


def registry_of(percent: float = 50.0, *, shadow: bool = False) -> QuotaRegistry:
    values = {(ANY_APP, KEY): percent}
    return QuotaRegistry(QuotaTable(None, values) if shadow else QuotaTable(values))


def charge(
    registry: QuotaRegistry,
    api_key: int,
    us: float,
    client_id: str = "app",
    now_ms: int = 0,
    node_id: int = 0,
) -> int:
    quotas = registry.of(node_id)
    return quotas.ledger("ANONYMOUS", client_id, now_ms).charge_request(api_key, us, now_ms)


@pytest.mark.parametrize("accept", PARSERS)
def test_metrics_show_request_time_in_seconds_by_api(server: Server, accept: str) -> None:
    registry = registry_of()
    charge(registry, PRODUCE, 250_000)
    charge(registry, PRODUCE, 250_000)
    charge(registry, METADATA, 125_000, now_ms=9)
    charge(registry, METADATA, 1_000_000, node_id=1)
    page = scraped(server, registry, accept=accept)
    name = "weir_request_time_seconds_total"
    assert page.value(name, **APP, api="Produce") == pytest.approx(0.5)
    assert page.value(name, **APP, api="Metadata") == pytest.approx(0.125)
    assert page.value(name, **(APP | {"broker": "1"}), api="Metadata") == pytest.approx(1.0)
    assert len(page.rows(name)) == 3
    assert page["weir_request_time_hidden"] == 0


@pytest.mark.parametrize("accept", PARSERS)
def test_request_time_metrics_of_an_entity_equal_its_budget(server: Server, accept: str) -> None:
    """5.2 s of a thread within 10.4 s are 50 %: at 40 % that is a quarter too much, of a window of 10.4 s
    2.6 s to wait, of which brokers bid nobody wait more than one second (KIP-124).
    """
    registry = registry_of(40)
    charge(registry, PRODUCE, 2_600_000)
    assert charge(registry, METADATA, 2_600_000, now_ms=400) == 1000
    page = scraped(server, registry, now_ms=400, accept=accept)
    app = {**APP, "quota": "request_percentage"}
    assert page.value("weir_entity_request_seconds_total", **app) == pytest.approx(5.2)
    assert page.value("weir_entity_rate_percent", **app) == pytest.approx(50)
    assert page.value("weir_entity_limit_percent", **app) == 40
    assert page.value("weir_entity_throttles_total", **app) == 1
    assert page.value("weir_entity_throttle_seconds_total", **app) == 1
    quota = {"broker": "0", "quota": "request_percentage"}
    assert page.value("weir_quota_request_seconds_total", **quota) == pytest.approx(5.2)
    assert page.value("weir_quota_throttles_total", **quota) == 1
    assert page.value("weir_quota_throttle_seconds_total", **quota) == 1
    assert page.value("weir_quota_entities", **quota) == 1
    assert page.rows("weir_entity_bytes_total") == {}
    assert page.rows("weir_entity_rate_bytes_per_second") == {}
    assert quota["quota"] not in str(page.rows("weir_quota_bytes_total"))


def test_metrics_show_the_top_entities_of_bytes_and_of_request_time_separately(server: Server) -> None:
    """A percent is far less than a byte."""
    values = {(ANY_APP, key): 50.0 for key in (KEY, QuotaKey.PRODUCER_BYTE_RATE)}
    registry = QuotaRegistry(QuotaTable(values))
    for number in range(ENTITIES_MAX + 5):
        ledger = registry.of(0).ledger("ANONYMOUS", f"app-{number}", 0)
        assert ledger.produce is not None
        ledger.produce.charge(1e9 + number, 0)
        charge(registry, METADATA, 1000 + number, f"app-{number}")
    page = scraped(server, registry)
    for name in ("weir_entity_bytes_total", "weir_entity_request_seconds_total"):
        assert len(page.rows(name)) == ENTITIES_MAX
    assert page["weir_quota_entities_hidden"] == 5 + 5


def test_invented_api_keys_take_no_memory_and_no_metric_series() -> None:
    registry = registry_of()
    for api_key in range(-32_768, 32_768):
        charge(registry, api_key, 1000)
    (budget,) = registry.of(0).request
    assert len(budget.by_api) == 129
    assert sum(budget.by_api.values()) == pytest.approx(budget.charged)


def test_invented_client_ids_cannot_lengthen_the_request_time_metrics(server: Server) -> None:
    registry = registry_of()
    for number in range(ENTITIES_MAX + 10):
        for api_key in range(3):
            charge(registry, api_key, 1000 + number, f"app-{number}")
    page = scraped(server, registry)
    assert len(page.rows("weir_request_time_seconds_total")) == SERIES_MAX
    assert page["weir_request_time_hidden"] == 3 * ENTITIES_MAX - SERIES_MAX
