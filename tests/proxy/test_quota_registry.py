"""One registry for a cluster: byte rates count at each broker, mutations once for all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.quotas.changes import put_in_force
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.quotas import Entity, MutationBudget, QuotaKey, QuotaTable
from weir.quotas.handover import CarriedQuotas, QuotasName, UsedUnits
from weir.quotas.registry import IDLE_MS_MAX
from weir.quotas.table.entities import BELOW_FLOORS, Tags
from weir.quotas.table.options import Options, Scope

APP = Entity(client_id="app")


def table(rate: float) -> QuotaTable:
    return QuotaTable(
        {(APP, QuotaKey.CONTROLLER_MUTATION_RATE): rate, (APP, QuotaKey.PRODUCER_BYTE_RATE): 1000.0}
    )


def mutations_at(registry: QuotaRegistry, node_id: int | None) -> MutationBudget:
    budget = registry.of(node_id).mutations.budget("alice", "app", 0)
    assert budget is not None
    return budget


def test_mutations_at_any_broker_are_charged_to_one_budget() -> None:
    registry = QuotaRegistry(table(2.0))
    assert mutations_at(registry, 0).begin(strict=True).admit(30, 0)
    assert not mutations_at(registry, 1).begin(strict=True).admit(1, 0)
    assert not mutations_at(registry, None).begin(strict=True).admit(1, 0)
    first, other = (registry.of(number).ledger("alice", "app", 0) for number in (0, 1))
    assert first.produce is not other.produce


def test_a_quota_change_reaches_mutation_budgets_before_any_broker_is_known() -> None:
    registry = QuotaRegistry(QuotaTable())
    put_in_force(registry, table(2.0))
    budget = registry.mutations.budget("alice", "app", 0)
    assert mutations_at(registry, 5) is budget
    put_in_force(registry, table(3.0))
    assert budget is not None
    assert budget.limit == 3.0


def test_use_takes_the_table_that_prepare_has_derived() -> None:
    registry, calls, after = QuotaRegistry(QuotaTable()), itertools.count(1), table(2.0)
    registry.derive = lambda table: table.altered({(APP, QuotaKey.PRODUCER_BYTE_RATE): float(next(calls))})
    registry.prepare(after)
    for number in (1.0, 2.0):
        registry.use(after)
        assert registry.derived.rates_of(APP)[QuotaKey.PRODUCER_BYTE_RATE] == number


def test_a_budget_that_all_brokers_share_is_forgotten_once() -> None:
    registry = QuotaRegistry(table(2.0))
    for node_id in range(3):
        mutations_at(registry, node_id)
    assert sum(registry.expire(IDLE_MS_MAX)) == 1


@pytest.mark.parametrize("part", ["", BELOW_FLOORS])
def test_a_change_reaches_absorbed_budgets_of_the_cluster_while_no_broker_is_known(part: str) -> None:
    """In the supervisor nobody looks budgets up: the workers do."""
    tags, limit = Tags("", part, group="<all>"), (Entity(group="<all>"), QuotaKey.PRODUCER_BYTE_RATE)
    all_brokers = {limit: Options(scope=Scope.CLUSTER)}
    registry = QuotaRegistry(QuotaTable({limit: 200.0}, options=all_brokers))
    registry.absorb([UsedUnits((None, "cluster produce", False), tags, [(0, 10.0)], 0)], 0)
    put_in_force(registry, registry.table.altered({limit: 3.0}))
    (budget,) = registry.cluster.produce
    assert (budget.limit, registry.brokers) == (3.0, {})


def test_absorbing_lists_the_quotas_once_for_each_new_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, listed = QuotaRegistry(table(2.0)), 0
    named = registry.named

    def counted() -> Iterator[tuple[QuotasName, CarriedQuotas]]:
        nonlocal listed
        listed += 1
        return named()

    monkeypatch.setattr(registry, "named", counted)
    for _ in range(100):
        for node_id in (1, 2):
            used = UsedUnits((node_id, "produce", False), Tags("", "app"), [(0, 10.0)], 0)
            registry.absorb([used], 0)
    assert listed == 2
    assert [sum(budget.rate(0) for budget in registry.of(each).produce) for each in (1, 2)] == [100, 100]


def test_usage_of_topics_is_absorbed_also_if_the_first_topic_rate_came_after_other_usage() -> None:
    registry = QuotaRegistry(table(2.0))
    registry.absorb([UsedUnits((1, "produce", False), Tags("", "app"), [(0, 10.0)], 0)], 0)
    put_in_force(registry, QuotaTable({(Entity(topic="t"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0}))
    registry.absorb([UsedUnits((1, "topic produce", False), Tags("", "", topic="t"), [(0, 10.0)], 0)], 0)
    topics = registry.of(1).topics
    assert topics is not None
    (budget,) = topics.produce.budgets(shadow=False)
    assert budget.rate(0) > 0
