"""The walk over all budgets that the log of throttles, levels of usage and histories share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quotas.changes import put_in_force
from weir.proxy.control import scan as scans
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.scan import FORGET, ROUND, Scan
from weir.quotas import DEFAULT, Budget, Entity, QuotaKey, QuotaTable
from weir.quotas.registry import IDLE_MS_MAX
from weir.quotas.table.options import Options, Pacing

LIMIT = 1000.0


def registry_of() -> QuotaRegistry:
    return QuotaRegistry(QuotaTable({(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): LIMIT}))


def budget_of(registry: QuotaRegistry, client_id: str = "app") -> Budget:
    budget = registry.of(1).ledger("alice", client_id, 0).produce
    assert isinstance(budget, Budget)
    return budget


def scan_of(registry: QuotaRegistry) -> Scan:
    return Scan(registry)


def end(steps: Iterator[None]) -> int:
    return sum(1 for _step in steps)


def counts(scan: Scan, now_ms: int) -> list[int]:
    end(scan.look(scan.number, now_ms))
    return [new.count for new in scan.take(shadow=False).values()]


def test_two_readers_of_one_scan_advance_it_together() -> None:
    registry = registry_of()
    for number in range(4 * scans.SLICE):
        budget_of(registry, f"app-{number}")
    scan = scan_of(registry)
    first, second = scan.look(0, 1000), scan.look(0, 1000)
    steps = 0
    for _one, _other in zip(first, second, strict=False):
        steps += 1
    assert scan.number == 1
    assert steps <= 4, "four slices, half of the steps by each reader"
    assert end(scan.look(0, 1500)) == 0, "a reader that has not used the scan needs no other one"
    end(scan.look(1, 2000))
    assert scan.number == 2


def test_a_step_that_fails_ends_one_scan_and_the_next_look_begins_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = registry_of()
    budget_of(registry).charge(12_000, 0)
    scan = scan_of(registry)
    with monkeypatch.context() as patch:
        patch.setattr(Scan, "_note_throttles", lambda *_args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            end(scan.look(0, 0))
    assert scan.number == 0
    assert counts(scan, 1000) == [1]


def test_throttles_are_found_once_also_those_of_requests_that_were_not_charged() -> None:
    """A request that is told the rest of a throttle time changes no time of a charge (`tell_rest`)."""
    registry = registry_of()
    scan, budget = scan_of(registry), budget_of(registry)
    budget.charge(20_000, 0)
    assert counts(scan, 0) == [1]
    assert counts(scan, 1000) == []
    budget.tell_rest(2000)
    assert counts(scan, 3000) == [1]
    budget.charge(20_000, 60_000)
    assert counts(scan, 60_000) == [1], "a charge in the same millisecond as the scan"
    budget.charge(1, 60_000)
    assert counts(scan, 61_000) == [1]


def test_the_rates_of_all_budgets_are_computed_in_five_scans_a_fifth_in_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = registry_of()
    budgets = [budget_of(registry, f"app-{number}") for number in range(50)]
    for budget in budgets:
        budget.charge(5000, 0)
    calls: list[int] = []
    rate = Budget.rate

    def counted(budget: Budget, now_ms: int) -> float:
        calls.append(now_ms)
        return rate(budget, now_ms)

    monkeypatch.setattr(Budget, "rate", counted)
    scan = scan_of(registry)
    for number in range(1, ROUND + 1):
        assert scan.take_high(shadow=False) == []
        end(scan.look(scan.number, 0))
        assert (len(calls), scan.rounds) == (10 * number, number // ROUND)
    assert {used.budget for used in scan.take_high(shadow=False)} == set(budgets)
    assert {used.usage for used in scan.most_used} == {0.5}, "5000 bytes in 10 s are 500 bytes/s"


def test_rates_of_budgets_whose_charges_have_expired_are_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = registry_of()
    budget = budget_of(registry)
    budget.charge(1, 0)
    assert budget.rate(registry.memory_ms - 1) > 0
    assert budget.rate(registry.memory_ms) == 0
    monkeypatch.setattr(Budget, "rate", None)
    scan = scan_of(registry)
    end(scan.look_around(0, registry.memory_ms))
    assert [used.usage for used in scan.most_used] == [0.0]


def test_counters_of_removed_budgets_are_forgotten() -> None:
    registry = registry_of()
    scan = scan_of(registry)
    for number in range(20):
        budget_of(registry, f"app-{number}").charge(12_000, 0)
    assert counts(scan, 0) == [1] * 20
    assert sum(registry.expire(2 * IDLE_MS_MAX)) == 20
    budget_of(registry, "app-0").charge(12_000, 2 * IDLE_MS_MAX)
    assert counts(scan, 2 * IDLE_MS_MAX) == [1], "of the new budget, as many as the removed one had"
    end(scan.look(FORGET, 2 * IDLE_MS_MAX))
    assert sum(map(len, scan._seen.values())) == 1


def test_throttles_of_a_budget_that_a_change_of_the_pacing_has_replaced_are_found_once() -> None:
    quota = Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE
    registry = registry_of()
    scan, budget = scan_of(registry), budget_of(registry)
    budget.charge(20_000, 0)
    assert counts(scan, 0) == [1]
    put_in_force(registry, QuotaTable({quota: LIMIT}, options={quota: Options(Pacing.SMOOTH)}))
    successor = budget_of(registry)
    assert successor is not budget
    assert successor.charge(20_000, 1000) > 0
    assert counts(scan, 1000) == [1]
