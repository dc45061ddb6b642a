"""The quota table."""

import math

import pytest

from quotas.entities import DEFAULT, Entity, Tags
from quotas.limits import Limit
from quotas.table import QuotaKey, QuotaTable

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, APP = Entity("alice"), Entity(client_id="app")


def test_each_key_has_its_own_limits() -> None:
    table = QuotaTable({(ALICE, PRODUCE): 10.0, (APP, FETCH): 20.0})
    assert table.limits(PRODUCE).resolve("alice", "app") == Limit(10.0, Tags("alice", ""))
    assert table.limits(FETCH).resolve("alice", "app") == Limit(20.0, Tags("", "app"))
    assert table.limits(QuotaKey.REQUEST_PERCENTAGE).resolve("alice", "app") is None


def test_a_change_makes_another_table() -> None:
    before = QuotaTable({(ALICE, PRODUCE): 10.0, (APP, PRODUCE): 20.0})
    after = before.altered(
        {(ALICE, PRODUCE): None, (APP, PRODUCE): 5.0, (ALICE, FETCH): 7.0, (APP, FETCH): None}
    )
    assert dict(after.values) == {(APP, PRODUCE): 5.0, (ALICE, FETCH): 7.0}
    assert dict(before.values) == {(ALICE, PRODUCE): 10.0, (APP, PRODUCE): 20.0}


def test_a_table_does_not_follow_the_dict_it_was_made_of() -> None:
    values = {(ALICE, PRODUCE): 10.0}
    table = QuotaTable(values)
    values[ALICE, PRODUCE] = 99.0
    assert table.values[ALICE, PRODUCE] == 10.0
    assert table.limits(PRODUCE).of(Tags("alice", "")) == 10.0


def test_order_does_not_matter() -> None:
    one = QuotaTable({(ALICE, PRODUCE): 1.0, (APP, PRODUCE): 2.0})
    other = QuotaTable({(APP, PRODUCE): 2.0, (ALICE, PRODUCE): 1.0})
    assert one == other
    assert hash(one) == hash(other)
    assert one != QuotaTable({(ALICE, PRODUCE): 1.0})
    assert one != "a table"
    assert len(one) == 2


def test_entities_come_once_each() -> None:
    table = QuotaTable({(ALICE, PRODUCE): 1.0, (APP, FETCH): 2.0, (ALICE, FETCH): 3.0})
    assert list(table.entities()) == [(ALICE, {PRODUCE: 1.0, FETCH: 3.0}), (APP, {FETCH: 2.0})]


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_is_a_number_above_zero(value: float) -> None:
    with pytest.raises(
        ValueError, match="producer_byte_rate of user <default> must be a finite number above 0"
    ):
        QuotaTable({(Entity(DEFAULT), PRODUCE): value})


def test_the_keys_are_kafkas() -> None:
    assert {key.value for key in QuotaKey} == {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
