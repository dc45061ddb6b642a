"""`scope = "cluster"`: one budget at all brokers, for byte rates, request time and rates of topics."""

from __future__ import annotations

from typing import Final

import pytest

from tests.quotas.changes import put_in_force
from weir.quotas import DEFAULT, BrokerQuotas, Budget, Entity, QuotaKey, QuotaTable
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.registry import IDLE_MS_MAX
from weir.quotas.table.options import Options, Pacing, Scope
from weir.quotas.topics import TopicRates

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
TIME = QuotaKey.REQUEST_PERCENTAGE
ALICE, ANY_APP, LOGS = Entity("alice"), Entity(client_id=DEFAULT), Entity(topic="logs")
TOGETHER: Final = Options(scope=Scope.CLUSTER)
APART: Final = Options()


def table(
    entity: Entity = ALICE,
    key: QuotaKey = PRODUCE,
    value: float = 1000.0,
    options: Options = TOGETHER,
    *,
    shadow: bool = False,
) -> QuotaTable:
    values, said = {(entity, key): value}, {(entity, key): options}
    return QuotaTable(None, values, None, said) if shadow else QuotaTable(values, None, said)


def brokers(quotas: QuotaTable, count: int = 2) -> list[BrokerQuotas]:
    cluster = ClusterQuotas()
    return [BrokerQuotas.create(quotas, cluster=cluster) for _ in range(count)]


def producer(quotas: BrokerQuotas, client_id: str = "app", now_ms: int = 0, user: str = "alice") -> Budget:
    budget = quotas.ledger(user, client_id, now_ms).produce
    assert isinstance(budget, Budget)
    return budget


def test_charges_at_two_brokers_count_together() -> None:
    first, second = brokers(table())
    assert producer(first).charge(6000, 0) == 0
    assert producer(second).charge(6000, 0) == 2000  # 12 s worth within 10 s
    assert producer(first) is producer(second)


def test_a_brokers_own_scale_of_request_time_holds_in_a_shared_budget() -> None:
    cluster, quotas = ClusterQuotas(), table(key=TIME, value=50.0)
    slow = BrokerQuotas.create(quotas, cluster=cluster, request_time_scale=2.0)
    fast = BrokerQuotas.create(quotas, cluster=cluster)
    for broker in (slow, fast):
        broker.ledger("alice", "app", 0).charge_request(3, 10_000, 0)
    budget, _shadow = fast.request_budgets("alice", "app")
    assert budget is not None
    assert budget.charged == pytest.approx(3.0)


def test_a_shadow_entry_of_cluster_scope_counts_at_all_brokers_and_delays_nobody() -> None:
    first, second = brokers(table(shadow=True))
    shadows = []
    for quotas in (first, second):
        ledger = quotas.ledger("alice", "app", 0)
        assert ledger.produce is None
        assert ledger.shadow is not None
        shadows.append(ledger.shadow.produce)
    assert shadows[0] is shadows[1] is not None


@pytest.mark.parametrize(("before", "after"), [(APART, TOGETHER), (TOGETHER, APART)])
def test_a_change_of_scope_counts_at_once_and_begins_with_nothing_used(
    before: Options, after: Options
) -> None:
    both = brokers(table(options=before))
    old = [producer(quotas) for quotas in both]
    old[0].charge(60_000, 0)
    generations = [quotas.generation for quotas in both]
    for quotas in both:
        put_in_force(quotas, table(options=after))
    assert all(quotas.generation > was for quotas, was in zip(both, generations, strict=True))
    new = [producer(quotas) for quotas in both]
    assert (new[0] is new[1]) == (after is TOGETHER)
    assert new[0].charge(10_000, 0) == 0
    assert {budget.limit for budget in old} == {float("inf")}
    for quotas in both:  # undone: what was used is found again
        put_in_force(quotas, table(options=before))
    assert producer(both[0]) is old[0]
    assert old[0].charge(1, 0) > 0


def test_a_new_value_reaches_a_shared_budget_with_the_first_broker_that_has_it() -> None:
    first, second = brokers(table())
    budget = producer(second)
    put_in_force(first, table(value=5000.0))
    put_in_force(second, table(value=5000.0))
    assert budget.limit == 5000.0
    assert producer(second) is budget


def test_a_change_of_pacing_replaces_the_budget_at_all_brokers() -> None:
    first, second = brokers(table())
    before = producer(first)
    before.charge(12_000, 0)
    for quotas in (first, second):
        put_in_force(quotas, table(options=Options(Pacing.SMOOTH, Scope.CLUSTER)))
    after = producer(first)
    assert after is producer(second) is not before
    assert (after.charged, after.tell_rest(0)) == (12_000, 2000)


def test_an_idle_budget_of_the_cluster_expires_once_and_all_brokers_look_again() -> None:
    cluster, quotas = ClusterQuotas(), table(ANY_APP)
    both = [BrokerQuotas.create(quotas, cluster=cluster) for _ in range(2)]
    budget = producer(both[0])
    assert producer(both[1]) is budget
    budget.charge(5, 0)
    generations = [broker.generation for broker in both]
    assert sum(cluster.expire(IDLE_MS_MAX)) == 1
    assert all(broker.generation > was for broker, was in zip(both, generations, strict=True))
    assert cluster.produce.forgotten.charged == 5
    assert producer(both[1], now_ms=IDLE_MS_MAX) is not budget


def test_brokers_share_the_overflow_budget_and_learn_of_budgets_that_made_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.quotas.registry.LIMITERS_MAX", 5)
    first, second = brokers(table(ANY_APP))
    for number in range(5):
        producer(first, f"app-{number}").charge(1, 0)
    assert producer(first, "late") is producer(second, "later")
    was = second.generation
    assert producer(first, "app-9", 60_000) is not producer(second, "app-8", 60_000)
    assert second.generation > was


# Topics


def rates(quotas: BrokerQuotas) -> TopicRates:
    assert quotas.topics is not None
    return quotas.topics.produce


def test_the_rate_of_a_topic_counts_at_all_brokers_together() -> None:
    first, second = brokers(table(LOGS))
    assert rates(first).charge({b"logs": 6000}, 0) == 0
    assert rates(second).charge({b"logs": 6000}, 0) == 2000
    assert rates(first).throttled_until_ms(["logs"]) == 2000


def test_a_topic_that_changes_its_scope_or_its_pacing_is_limited_on() -> None:
    first, second = brokers(table(LOGS))
    rates(first).charge({b"logs": 60_000}, 0)
    for quotas in (first, second):
        put_in_force(quotas, table(LOGS, options=APART))
    assert rates(first).charge({b"logs": 10_000}, 0) == 0
    assert rates(second).charge({b"logs": 10_000}, 0) == 0
    for quotas in (first, second):
        put_in_force(quotas, table(LOGS, options=Options(Pacing.SMOOTH)))
    assert rates(first).charge({b"logs": 1000}, 60_000) == 900
    for quotas in (first, second):
        put_in_force(quotas, table(LOGS))
    assert rates(first).charge({b"logs": 10_000}, 60_000) == 0
    assert rates(second).charge({b"logs": 1000}, 60_000) > 0
