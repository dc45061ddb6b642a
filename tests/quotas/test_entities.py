"""Which quota applies, and who shares it."""

from functools import partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.calls import calls_made
from tests.quotas.limits import limits_of
from tests.quotas.vectors import THROTTLE, Resolution, Sanitized, table
from weir.quotas.table.entities import DEFAULT, Entity, Name, Tags
from weir.quotas.table.limits import Limit
from weir.quotas.table.names import sanitize
from weir.quotas.table.quota_table import QuotaKey

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@pytest.mark.parametrize("case", THROTTLE.entity_resolution, ids=lambda case: case.id)
def test_limits_resolve_as_in_kafka(case: Resolution) -> None:
    limits = table(case.quotas, PRODUCE).limits(PRODUCE)
    for lookup in case.lookups:
        limit = limits.resolve(lookup.user, lookup.client_id)
        if lookup.limit is None:  # an unlimited client's tags depend on what else was ever configured
            assert limit is None
            continue
        assert limit is not None
        assert limit.value == lookup.limit
        assert {"user": sanitize(limit.tags.user), "client-id": limit.tags.client_id} == lookup.tags


@pytest.mark.parametrize("case", THROTTLE.sanitize, ids=lambda case: case.name)
def test_names_are_sanitized_as_in_kafka(case: Sanitized) -> None:
    assert sanitize(case.name) == case.sanitized


names = st.sampled_from(["alice", "bob", "<default>", "a:b", "User:alice"])
parts: st.SearchStrategy[Name | None] = st.one_of(st.none(), st.just(DEFAULT), names)
some = st.just(DEFAULT) | names
entities = st.builds(Entity, parts, some) | st.builds(Entity, some, parts)


@given(st.dictionaries(entities, st.floats(1, 1e9)), st.dictionaries(entities, st.floats(1, 1e9)))
def test_limits_are_equal_if_they_give_equal_values_to_equal_entities(
    one: dict[Entity, float], other: dict[Entity, float]
) -> None:
    assert limits_of(one).same_as(limits_of(other)) is (one == other)
    assert limits_of(one).same_as(limits_of(dict(reversed(one.items()))))


@pytest.mark.parametrize("parts", [(None, None), ("", None), (None, ""), ("alice", "")])
def test_an_entity_without_parts_or_with_an_empty_name_is_refused(
    parts: tuple[str | None, str | None],
) -> None:
    with pytest.raises(ValueError, match="entity"):
        Entity(*parts)


def test_a_limit_lookup_costs_the_same_among_many_entities() -> None:
    users, client_ids = ("alice", DEFAULT, None), ("app", DEFAULT, None)
    levels = {Entity(*both): 1.0 for both in product(users, client_ids) if any(both)}
    few = limits_of(levels)
    many = limits_of({**{Entity(f"u{n}", f"c{n}"): 1.0 for n in range(10_000)}, **levels})
    assert many.resolve("u9999", "c9999") == Limit(1.0, Tags("u9999", "c9999"))
    costs = {calls_made(partial(limits.resolve, "nobody", "nothing")) for limits in (few, many)}
    assert len(costs) == 1
    assert costs.pop() < 20
