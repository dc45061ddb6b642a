"""The quota table."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.work import cost
from tests.interpreted import interpreted
from tests.quotas.changes import put_in_force
from weir.quotas.client_quotas import byte_rates
from weir.quotas.limiters.budgets import UNLIMITED
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType
from weir.quotas.table.entities import DEFAULT, Entity, Prefix, Tags
from weir.quotas.table.limits import Limit
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.table.quota_table import Quota, QuotaKey, QuotaTable, keys_of

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, APP = Entity("alice"), Entity(client_id="app")


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


def test_each_entity_type_allows_its_quota_keys_only() -> None:
    groups = {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
    groups |= {"old_read_byte_rate"}
    clients = groups | {"producer_byte_floor", "consumer_byte_floor"}
    for entity in (ALICE, APP, Entity("a", DEFAULT), Entity(client_id=Prefix("a"))):
        assert {key.value for key in keys_of(entity)} == clients
    assert [key.value for key in keys_of(Entity(ip=DEFAULT))] == ["connection_creation_rate"]
    counts = {"topics_max", "partitions_max"}
    storage = {"stored_bytes_max", "usable_bytes_min", "over_byte_rate"}
    assert {key.value for key in QuotaKey} == clients | {"connection_creation_rate"} | counts | storage
    assert {key.value for key in keys_of(Entity(topic_prefix="t"))} == counts | storage
    assert {key.value for key in keys_of(Entity(group="g"))} == groups | storage
    rates = {"producer_byte_rate", "consumer_byte_rate"}
    assert {key.value for key in keys_of(Entity(topic="t"))} == rates | storage


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_is_a_number_above_zero(value: float) -> None:
    message = "producer_byte_rate of user <default> must be a finite number above 0"
    with pytest.raises(ValueError, match=message):
        QuotaTable({(Entity(DEFAULT), PRODUCE): value})


people = st.sampled_from([None, DEFAULT, "alice", "bob"])
clients = st.sampled_from([None, DEFAULT, "app", Prefix("a"), Prefix("ap")])
changed_entities = st.one_of(
    st.tuples(people, clients).filter(any).map(lambda parts: Entity(*parts)),
    st.sampled_from([Entity(topic="t"), Entity(topic="u")]),
    st.sampled_from([Entity(ip="10.0.0.1"), Entity(ip=DEFAULT)]),
)
options = st.sampled_from([PLAIN, Options(Pacing.SMOOTH, Scope.CLUSTER)])
changed_values = st.none() | st.builds(QuotaValue, st.sampled_from([1.0, 2.0]), options)
sides = st.dictionaries(st.tuples(changed_entities, st.sampled_from(QuotaKey)), changed_values, max_size=6)
RATE = ConfigKey(ResourceType.BROKER, "", "leader.replication.throttled.rate")
throttles = st.dictionaries(st.just(RATE), st.sampled_from([None, "1", "2"]))
deltas = st.builds(QuotaDelta, sides, sides, throttles)


def rebuilt(table: QuotaTable) -> QuotaTable:
    """The same quotas, with nothing taken from another table."""
    return QuotaTable(
        dict(table.values),
        dict(table.shadow),
        dict(table.options()),
        dict(table.options(shadow=True)),
        table.pacing,
        replication=ReplicationThrottles(table.replication.values),
    )


@given(st.lists(deltas, max_size=8), st.booleans())
def test_a_table_changed_many_times_equals_one_built_at_once(steps: list[QuotaDelta], prepare: bool) -> None:
    """Lookups that former tables have computed are taken over: none may answer for a former table."""
    table = QuotaTable()
    values: tuple[dict[Quota, QuotaValue], dict[Quota, QuotaValue]] = ({}, {})
    for step in steps:
        before = table
        if prepare:
            for variant in (before, before.in_shadow(), before.paced(Pacing.SMOOTH)):
                variant.prepared(QuotaTable())
        table = before.applied(step)
        for side, changes in zip(values, (step.enforced, step.shadow), strict=True):
            for quota, value in changes.items():
                side.pop(quota, None)
                if value is not None:
                    side[quota] = value
        assert before.applied(rebuilt(table).delta(before)) == table
    rate, shadow_rate = ({quota: its.value for quota, its in side.items()} for side in values)
    its, in_shadow = ({quota: each.options for quota, each in side.items()} for side in values)
    wanted = QuotaTable(rate, shadow_rate, its, in_shadow, replication=table.replication)
    for found, new in (
        (table, wanted),
        (table.in_shadow(), wanted.in_shadow()),
        (table.paced(Pacing.SMOOTH), wanted.paced(Pacing.SMOOTH)),
    ):
        assert found == new
        assert len(found) == len(new)
        for key in QuotaKey:
            assert found.has(key) == new.has(key)
            assert found.limits(key).same_as(new.limits(key))
            assert found.shadow_limits(key).same_as(new.shadow_limits(key))
            for shadow in (False, True):
                assert found.topics(key, shadow=shadow) == new.topics(key, shadow=shadow)
            for user, client_id in product(["alice", "carol"], ["app", "b", ""]):
                assert found.limits(key).resolve(user, client_id) == new.limits(key).resolve(user, client_id)


@interpreted
def test_altering_one_value_costs_the_same_in_a_table_of_any_size() -> None:
    costs = []
    for number in (500, 4_000):
        values = {(Entity(f"user-{n}"), PRODUCE): 1.0 for n in range(number)}
        table = QuotaTable(values, {(Entity(f"user-{n}"), FETCH): 1.0 for n in range(number)})
        table.prepared(QuotaTable())
        table.in_shadow().prepared(QuotaTable())

        def alter(table: QuotaTable = table) -> None:
            after = table.altered({(Entity("user-7"), PRODUCE): 2.0})
            for each, before in ((after, table), (after.in_shadow(), table.in_shadow())):
                each.prepared(before)
                assert each.delta(before).number == 1

        costs.append(cost(alter))
    assert costs[0].steps == costs[1].steps
    assert costs[1].peak_bytes < costs[0].peak_bytes + 1000


levels = st.tuples(people, clients).filter(any).map(lambda parts: (Entity(*parts), PRODUCE))
produce_rates = st.dictionaries(levels, st.none() | st.sampled_from([1.0, 2.0]).map(QuotaValue), max_size=4)


@given(st.lists(st.tuples(produce_rates, produce_rates).map(lambda both: QuotaDelta(*both)), max_size=5))
def test_limiters_that_no_connection_looks_up_have_the_limits_of_the_changed_table(
    steps: list[QuotaDelta],
) -> None:
    quotas, table = byte_rates(PRODUCE), QuotaTable()
    for step in steps:
        table = table.applied(step).prepared(table)
        put_in_force(quotas, table)
        new = byte_rates(PRODUCE)
        new.use(rebuilt(table))
        for side, other in ((quotas, new), (quotas.shadow, new.shadow)):
            assert side is not None
            assert other is not None
            for limiter in side:
                wanted = other.restored(limiter.tags, 0)
                assert limiter.limit == (UNLIMITED if wanted is None else wanted.limit)
            for user, client_id in product(["alice", "carol"], ["app", "b"]):
                side.budget(user, client_id, 0)
