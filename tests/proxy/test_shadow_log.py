"""The log of shadow quotas: who would have been throttled since it was last said, in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from proxy.control.quota_registry import QuotaRegistry
from proxy.control.shadow_log import LINES_MAX, SLICE, ShadowLog
from proxy.control.supervisor import in_steps
from quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from quotas.connections import ConnectionQuotas
from tests.quotas.changes import put_in_force

if TYPE_CHECKING:
    from trio import Nursery

    from quotas import Budget

ANY_APP = Entity(client_id=DEFAULT)
PRODUCE, MUTATIONS = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONTROLLER_MUTATION_RATE


def registry_of(key: QuotaKey = PRODUCE, entity: Entity = ANY_APP, rate: float = 1000.0) -> QuotaRegistry:
    return QuotaRegistry(QuotaTable(None, {(entity, key): rate}))


def shadow(registry: QuotaRegistry, client_id: str = "app", node_id: int = 0) -> Budget:
    ledger = registry.of(node_id).ledger("alice", client_id, 0).shadow
    assert ledger is not None
    assert ledger.produce is not None
    return ledger.produce


def said(shadow_log: ShadowLog, now_ms: int = 0) -> list[dict[str, object]]:
    with capture_logs() as lines:
        for _step in shadow_log.look(now_ms):
            pass
    return [dict(line) for line in lines]


def test_the_shadow_log_reports_new_throttles_once() -> None:
    """12,000 bytes at 1000 bytes/s, of which 10,000 pass at once; 3000 more after half a second."""
    registry = registry_of()
    shadow_log = ShadowLog(registry, ConnectionQuotas())
    assert said(shadow_log) == []
    shadow(registry).charge(12_000, 0)
    line = {
        "event": "would have throttled",
        "log_level": "info",
        "quota": "producer_byte_rate",
        "client_id": "app",
        "limit": 1000.0,
    }
    assert said(shadow_log) == [{**line, "count": 1, "seconds": 2.0, "rate": 1200}]
    assert said(shadow_log) == []
    shadow(registry).charge(3000, 500)
    assert said(shadow_log, 500) == [{**line, "count": 1, "seconds": 3.0, "rate": round(15_000 / 10.5)}]


def test_the_shadow_log_reports_nothing_within_the_quota() -> None:
    registry = registry_of()
    shadow(registry).charge(10_000, 0)
    assert said(ShadowLog(registry, ConnectionQuotas())) == []


def test_the_shadow_log_shows_no_limit_for_a_removed_entry() -> None:
    registry = registry_of()
    shadow(registry).charge(12_000, 0)
    put_in_force(registry, QuotaTable())
    (line,) = said(ShadowLog(registry, ConnectionQuotas()))
    assert line["limit"] is None


def test_the_shadow_log_sums_throttles_of_all_brokers() -> None:
    registry = registry_of()
    shadow(registry, node_id=1).charge(12_000, 0)
    shadow(registry, node_id=2).charge(11_000, 0)
    (line,) = said(ShadowLog(registry, ConnectionQuotas()))
    assert (line["count"], line["seconds"], line["rate"]) == (2, 3.0, 1200)


def test_the_shadow_log_names_the_longest_throttles_and_counts_all_others() -> None:
    registry = registry_of()
    for number in range(LINES_MAX + 3):
        shadow(registry, f"app-{number:02}").charge(11_000 + 1000 * number, 0)
    *named, others = said(ShadowLog(registry, ConnectionQuotas()))
    assert [line["client_id"] for line in named] == [f"app-{n:02}" for n in range(LINES_MAX + 2, 2, -1)]
    assert others == {
        "event": "would have throttled others",
        "log_level": "info",
        "entities": 3,
        "count": 3,
        "seconds": 1.0 + 2.0 + 3.0,
    }


def test_the_shadow_log_counts_mutations_that_would_have_been_refused() -> None:
    registry = registry_of(MUTATIONS, Entity("alice", Prefix("a")), rate=1.0)
    ledger = registry.of(0).mutation_ledger("alice", "app", 0)
    assert ledger is not None
    assert ledger.shadow is not None
    charge = ledger.shadow.begin(strict=True)
    for _topic in range(4):
        charge.admit(12, 0)
    charge.finish(0)
    assert said(ShadowLog(registry, ConnectionQuotas())) == [
        {
            "event": "would have throttled",
            "log_level": "info",
            "quota": "controller_mutation_rate",
            "user": "alice",
            "client_id_prefix": "a",
            "count": 1,
            "seconds": 1.0,
            "refused": 3,
            "limit": 1.0,
        }
    ]


def test_the_shadow_log_shows_request_time_in_percent_of_a_thread() -> None:
    """1.23 s of one thread in the window of 10 s are 12.3 %; of them 2 % were allowed."""
    registry = registry_of(QuotaKey.REQUEST_PERCENTAGE, Entity("alice"), rate=2.0)
    quotas = registry.of(0)
    assert quotas.ledger("alice", "app", 0).charge_request(3, 1_234_567.0, 0) == 0
    assert said(ShadowLog(registry, ConnectionQuotas())) == [
        {
            "event": "would have throttled",
            "log_level": "info",
            "quota": "request_percentage",
            "user": "alice",
            "count": 1,
            "seconds": 1.0,
            "rate": 12.35,
            "limit": 2.0,
        }
    ]


def test_the_shadow_log_reports_a_recreated_budget_as_new() -> None:
    registry = registry_of()
    shadow_log = ShadowLog(registry, ConnectionQuotas())
    for _time in range(3):
        shadow(registry).charge(12_000, 0)
    said(shadow_log)
    sum(registry.expire(3_600_000))
    shadow(registry).charge(12_000, 3_600_000)
    (line,) = said(shadow_log, 3_600_000)
    assert (line["count"], line["seconds"]) == (1, 2.0)


@pytest.mark.trio
async def test_the_shadow_log_lets_other_tasks_run_between_its_steps(nursery: Nursery) -> None:
    registry = registry_of()
    for number in range(5 * SLICE):
        shadow(registry, f"app-{number}")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(count)
    await in_steps(ShadowLog(registry, ConnectionQuotas()).look(0))
    assert turns >= 3
    nursery.cancel_scope.cancel()


def test_the_shadow_log_names_topics_and_addresses() -> None:
    registry = QuotaRegistry(QuotaTable())
    rates = {
        (Entity(topic="orders"), QuotaKey.PRODUCER_BYTE_RATE): 10.0,
        (Entity(ip="10.0.0.1"), QuotaKey.CONNECTION_CREATION_RATE): 1.0,
    }
    table = QuotaTable(None, rates)
    put_in_force(registry, table)
    connections = ConnectionQuotas(table)
    topics = registry.of(1).topics
    assert topics is not None
    topics.produce.charge({b"orders": 5000}, 0)
    for _ in range(15):
        connections.admit(1, "10.0.0.1", 0)
    lines = said(ShadowLog(registry, connections))
    assert [(line["quota"], line.get("topic"), line.get("ip"), line["count"]) for line in lines] == [
        ("producer_byte_rate", "orders", None, 1),
        ("connection_creation_rate", None, "10.0.0.1", 5),
    ]
