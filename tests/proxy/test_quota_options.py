"""Pacing and scope in the running proxy: from settings and files to sessions, and in metrics once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.proxy.metrics_page import Page, registry_of, scraped, server
from tests.quotas.changes import put_in_force
from weir.proxy.admin.request_time import report
from weir.proxy.config.config import Settings
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.file import read_quota_file, rewrite
from weir.proxy.control.stores.snapshot import read_snapshot, write_snapshot
from weir.quotas import Entity, QuotaKey, QuotaTable, parse
from weir.quotas.limiters.smooth import SmoothBudget
from weir.quotas.table.options import Options, Pacing, Scope

if TYPE_CHECKING:
    from pathlib import Path

    from weir.proxy.server.server import Server

__all__ = ["server"]  # a fixture

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity("alice")
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


def test_metrics_without_entries_of_cluster_scope_name_no_cluster(server: Server) -> None:
    registry = registry_of()
    registry.of(0).ledger("ANONYMOUS", "app", 0)
    page = scraped(server, registry)
    assert not [name for name, labels in page.samples if ("broker", "cluster") in labels]


def test_the_request_time_of_a_client_names_a_budget_of_the_cluster_once() -> None:
    registry = registry_of(TOGETHER)
    for node_id in (0, 1):
        charge(registry, node_id, 1)
    (budget,) = report(registry, {"client_id": "app"}, 0).budgets
    assert budget.broker == "cluster"
    assert budget.seconds == pytest.approx(0.002)


def test_idle_budgets_of_the_cluster_expire_with_the_others() -> None:
    registry = registry_of(TOGETHER)
    charge(registry, 0, 1)
    assert sum(registry.expire(3_600_000)) == 2
    assert len(registry.cluster.produce) == 0


def test_the_configured_pacing_holds_for_entries_that_say_none() -> None:
    table = QuotaTable({(ALICE, PRODUCE): 1000.0})
    registry = QuotaRegistry(table, pacing=Pacing(Settings(quota_pacing="smooth").quota_pacing))
    assert isinstance(registry.of(0).ledger("alice", "", 0).produce, SmoothBudget)
    assert registry.table is table
    put_in_force(registry, parse('[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\npacing = "kafka"\n'))
    assert not isinstance(registry.of(0).ledger("alice", "", 0).produce, SmoothBudget)


def test_a_value_that_is_altered_in_the_file_keeps_the_options_of_its_entry(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text(
        '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\npacing = "smooth"\nscope = "cluster"\n'
    )
    rewrite(file, {(ALICE, PRODUCE): 2000.0})
    table = read_quota_file(file)
    assert table.values == {(ALICE, PRODUCE): 2000.0}
    assert table.options_of(ALICE) == Options(Pacing.SMOOTH, Scope.CLUSTER)


def test_a_snapshot_keeps_pacing_and_scope(tmp_path: Path) -> None:
    said = {(ALICE, PRODUCE): Options(Pacing.SMOOTH, Scope.CLUSTER)}
    values = {(ALICE, PRODUCE): 1000.0}
    table = QuotaTable(values, values, said, {(ALICE, PRODUCE): Options(Pacing.KAFKA)})
    write_snapshot(tmp_path / "snapshot.toml", table)
    assert read_snapshot(tmp_path / "snapshot.toml") == table
