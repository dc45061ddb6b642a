"""The quota table."""

import math

import pytest

from weir.quotas.table.entities import DEFAULT, Entity, Prefix, Tags
from weir.quotas.table.limits import Limit
from weir.quotas.table.quota_table import QuotaKey, QuotaTable, keys_of

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, APP = Entity("alice"), Entity(client_id="app")


def test_altering_a_quota_table_returns_a_new_one() -> None:
    before = QuotaTable({(ALICE, PRODUCE): 10.0, (APP, PRODUCE): 20.0})
    after = before.altered(
        {(ALICE, PRODUCE): None, (APP, PRODUCE): 5.0, (ALICE, FETCH): 7.0, (APP, FETCH): None}
    )
    assert dict(after.values) == {(APP, PRODUCE): 5.0, (ALICE, FETCH): 7.0}
    assert dict(before.values) == {(ALICE, PRODUCE): 10.0, (APP, PRODUCE): 20.0}


def test_shadow_and_enforced_entries_of_a_table_are_independent() -> None:
    table = QuotaTable({(ALICE, PRODUCE): 10.0}, shadow={(ALICE, PRODUCE): 5.0, (APP, PRODUCE): 1.0})
    assert dict(table.values) == {(ALICE, PRODUCE): 10.0}
    assert dict(table.shadow) == {(ALICE, PRODUCE): 5.0, (APP, PRODUCE): 1.0}
    assert table.limits(PRODUCE).resolve("alice", "app") == Limit(10.0, Tags("alice", ""))
    assert table.limits(PRODUCE).resolve("bob", "app") is None
    assert table.shadow_limits(PRODUCE).resolve("alice", "app") == Limit(
        5.0, Tags("alice", ""), is_shadow=True
    )
    assert table.shadow_limits(FETCH).resolve("alice", "app") is None
    assert list(table.entities()) == [(ALICE, {PRODUCE: 10.0})]
    assert list(table.shadow_entities()) == [(ALICE, {PRODUCE: 5.0}), (APP, {PRODUCE: 1.0})]
    assert len(table) == 3


def test_a_prepared_quota_table_shares_unchanged_limits_with_the_table_before() -> None:
    before = QuotaTable({(ALICE, PRODUCE): 10.0, (ALICE, FETCH): 3.0}, shadow={(APP, FETCH): 5.0})
    after = before.altered({(ALICE, PRODUCE): 11.0})
    assert after.prepared(before) is after
    assert after.limits(FETCH) is before.limits(FETCH)
    assert after.shadow_limits(FETCH) is before.shadow_limits(FETCH)
    assert after.limits(PRODUCE).resolve("alice", "") == Limit(11.0, Tags("alice", ""))
    assert before.limits(PRODUCE).resolve("alice", "") == Limit(10.0, Tags("alice", ""))


def test_a_quota_table_finds_the_rates_of_topics_by_key_and_mode() -> None:
    orders, clicks = Entity(topic="orders"), Entity(topic="clicks")
    table = QuotaTable(
        {(orders, PRODUCE): 10.0, (orders, FETCH): 3.0, (ALICE, PRODUCE): 1.0}, {(clicks, PRODUCE): 5.0}
    )
    for found in (table, table.prepared(QuotaTable())):
        assert found.topics(PRODUCE) == {"orders": 10.0}
        assert found.topics(PRODUCE, shadow=True) == {"clicks": 5.0}
        assert found.topics(FETCH) == {"orders": 3.0}
        assert found.topics(FETCH, shadow=True) == {}


def test_each_entity_type_allows_its_quota_keys_only() -> None:
    clients = {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
    for entity in (ALICE, APP, Entity("a", DEFAULT), Entity(client_id=Prefix("a"))):
        assert {key.value for key in keys_of(entity)} == clients
    assert [key.value for key in keys_of(Entity(ip=DEFAULT))] == ["connection_creation_rate"]
    assert {key.value for key in QuotaKey} == clients | {"connection_creation_rate"}
    assert {key.value for key in keys_of(Entity(topic="t"))} == {"producer_byte_rate", "consumer_byte_rate"}


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_is_a_number_above_zero(value: float) -> None:
    with pytest.raises(
        ValueError, match="producer_byte_rate of user <default> must be a finite number above 0"
    ):
        QuotaTable({(Entity(DEFAULT), PRODUCE): value})
