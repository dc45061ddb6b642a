"""Storage budgets: when they are over, and which rates they then set."""

from __future__ import annotations

import pytest

from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.storage import STALE_MS, BrokerStorage, StorageBudgets
from weir.quotas.table.options import Options, Pacing

STORED, USABLE, OVER = QuotaKey.STORED_BYTES_MAX, QuotaKey.USABLE_BYTES_MIN, QuotaKey.OVER_BYTE_RATE
PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
PAY, ORDERS, ALL = Entity(topic_prefix="pay."), Entity(topic="orders"), Entity(group="<all>")


def budgets_of(table: QuotaTable, *brokers: BrokerStorage) -> StorageBudgets:
    budgets = StorageBudgets()
    budgets.use(table)
    for node_id, storage in enumerate(brokers):
        budgets.read(node_id, storage, 0)
    budgets.judge(0)
    return budgets


def produce_rates(table: QuotaTable, budgets: StorageBudgets, *, shadow: bool = False) -> dict[str, float]:
    applied = budgets.applied(table)
    side = applied.shadow if shadow else applied.values
    return {str(entity): rate for (entity, key), rate in side.items() if key is PRODUCE}


def stored(size: int) -> BrokerStorage:
    return BrokerStorage({"pay.a": size}, None)


def test_a_budget_is_over_above_its_mark_and_kept_again_five_percent_below() -> None:
    table = QuotaTable({(PAY, STORED): 1000, (PAY, OVER): 64})
    budgets, seen = budgets_of(table), []
    for size in (1000, 1001, 951, 950, 1000, 1001):
        budgets.read(0, stored(size), 0)
        budgets.judge(0)
        seen.append(bool(produce_rates(table, budgets)))
    assert seen == [False, True, True, False, False, True]


def test_the_fullest_volume_of_any_broker_decides_about_usable_bytes() -> None:
    table = QuotaTable({(ALL, USABLE): 1000, (ALL, OVER): 64})
    budgets, seen = budgets_of(table, BrokerStorage({}, 5000), BrokerStorage({}, None)), []
    for usable in (1000, 999, 1049, 1050):
        budgets.read(2, BrokerStorage({}, usable), 0)
        budgets.judge(0)
        seen.append(produce_rates(table, budgets))
    assert seen == [{}, {"group <all>": 64}, {"group <all>": 64}, {}]


def test_replicas_of_all_brokers_are_added_up_but_a_group_has_each_broker_alone() -> None:
    both = stored(600), BrokerStorage({"pay.b": 600, "other": 300}, None)
    table = QuotaTable({(PAY, STORED): 1100, (PAY, OVER): 64, (ALL, STORED): 1000, (ALL, OVER): 5})
    assert produce_rates(table, budgets_of(table, *both)) == {"topic pay.a": 64, "topic pay.b": 64}
    fuller = stored(600), BrokerStorage({"other": 1001}, None)
    assert produce_rates(table, budgets_of(table, *fuller)) == {"group <all>": 5}


@pytest.mark.parametrize(("own", "found"), [(1, 1), (64, 64), (65, 64)])
def test_a_budget_raises_no_configured_rate_and_keeps_the_options_of_the_entry(own: int, found: int) -> None:
    options = Options(Pacing.SMOOTH)
    values = {(ORDERS, STORED): 10, (ORDERS, OVER): 64, (ORDERS, PRODUCE): own}
    table = QuotaTable(values, options=dict.fromkeys(values, options))
    budgets = budgets_of(table, BrokerStorage({"orders": 11}, None))
    assert produce_rates(table, budgets) == {"topic orders": found}
    assert budgets.applied(table).options_of(ORDERS) == options
    cause = budgets.cause(ORDERS, PRODUCE, found, shadow=False)
    assert str(cause) == ("None" if own == 1 else "stored_bytes_max of topic orders")


def test_a_shadow_budget_sets_a_shadow_rate_at_most_as_high_as_the_enforced_one() -> None:
    table = QuotaTable({(ORDERS, PRODUCE): 50}, {(ORDERS, STORED): 10, (ORDERS, OVER): 64})
    budgets = budgets_of(table, BrokerStorage({"orders": 11}, None))
    assert produce_rates(table, budgets) == {"topic orders": 50}
    assert produce_rates(table, budgets, shadow=True) == {"topic orders": 50}


def test_the_lowest_rate_of_several_budgets_counts() -> None:
    every = Entity(topic_prefix="p")
    table = QuotaTable({(PAY, STORED): 1, (PAY, OVER): 64, (every, STORED): 1, (every, OVER): 32})
    assert produce_rates(table, budgets_of(table, stored(2))) == {"topic pay.a": 32}


def test_old_data_release_a_budget_and_those_of_other_brokers_still_count() -> None:
    table = QuotaTable({(PAY, STORED): 1000, (PAY, OVER): 64})
    budgets = budgets_of(table, stored(600), stored(600))
    budgets.read(1, stored(600), 1000)
    assert not budgets.judge(STALE_MS - 1)
    assert budgets.judge(STALE_MS)
    assert not produce_rates(table, budgets)
    assert [reading.number for reading in budgets.readings()] == [600]
    assert not budgets.judge(STALE_MS + 1000)
    assert [reading.number for reading in budgets.readings()] == [None]


def test_a_budget_without_a_rate_is_told_and_a_changed_one_is_judged_anew() -> None:
    told = QuotaTable({(PAY, STORED): 1000})
    budgets = budgets_of(told, stored(1001))
    assert [reading.is_over for reading in budgets.readings()] == [True]
    assert budgets.applied(told) is told
    raised = QuotaTable({(PAY, STORED): 2000, (PAY, OVER): 64})
    assert budgets.applied(raised) is raised
    budgets.use(raised)
    assert budgets.judge(0)
    assert not produce_rates(raised, budgets)


def test_a_new_topic_of_a_prefix_gets_the_rate_at_the_next_look() -> None:
    table = QuotaTable({(PAY, STORED): 10, (PAY, OVER): 64})
    budgets = budgets_of(table, stored(11))
    budgets.read(0, BrokerStorage({"pay.a": 11, "pay.new": 1}, None), 0)
    assert budgets.judge(0)
    assert sorted(produce_rates(table, budgets)) == ["topic pay.a", "topic pay.new"]
