"""Prefixes, topics, addresses and shadow entries among the limits; Kafka's own levels are `test_entities`."""

from hypothesis import given
from hypothesis import strategies as st

from tests.interpreted import interpreted
from tests.quotas.calls import calls_made
from tests.quotas.limits import limits_of
from weir.quotas import DEFAULT, Entity, Limit, Prefix, QuotaKey, QuotaTable, Tags
from weir.quotas.table.bounded_names import bounded_tags, overflow_tags
from weir.quotas.table.entities import Name
from weir.quotas.table.quota_delta import QuotaValue

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


# Names that could be taken for one another, or for a prefix written as a name.
client_ids = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "abc", "b", "a*", "ab*", "a\x00", "\x00", "<default>", "<others>", "prefix:a"]
    ),
    st.text(st.sampled_from("ab*\x00é\ud800"), max_size=4),
)
users = st.sampled_from(["", "a", "b", "a\x00", "ANONYMOUS"])
named = client_ids.filter(bool)
entities = st.one_of(
    st.builds(Entity, users.filter(bool) | st.just(DEFAULT)),
    st.builds(
        Entity,
        st.none() | st.just(DEFAULT) | users.filter(bool),
        named | st.just(DEFAULT) | st.builds(Prefix, named),
    ),
)
quotas = st.dictionaries(entities, st.integers(1, 1000).map(float), max_size=12)


def covers(name: Name | Prefix | None, given_: str) -> bool:
    """Whether an entity's part means what a client calls itself."""
    if name is None:
        return True
    if isinstance(name, Prefix):
        return given_ != "" and given_.startswith(name.start)
    return given_ != "" if name is DEFAULT else name == given_


def order(entity: Entity) -> tuple[int, int, int]:
    user = 2 if entity.user is None else 1 if entity.user is DEFAULT else 0
    client_id = entity.client_id
    if isinstance(client_id, Prefix):
        return user, 1, -len(client_id.start)
    return user, 3 if client_id is None else 2 if client_id is DEFAULT else 0, 0


def winner(quotas: dict[Entity, float], user: str, client_id: str) -> Entity | None:
    fitting = [e for e in quotas if covers(e.user, user) and covers(e.client_id, client_id)]
    return min(fitting, key=order, default=None)


def shared_by(entity: Entity, user: str, client_id: str) -> Tags:
    """Who shares the budget of a client that the entity's quota applies to."""
    its_user = "" if entity.user is None else user
    if isinstance(entity.client_id, Prefix):
        return Tags(its_user, "", entity.client_id.start)
    return Tags(its_user, "" if entity.client_id is None else client_id)


@given(quotas, users, client_ids)
def test_the_first_matching_quota_level_wins(quotas: dict[Entity, float], user: str, client_id: str) -> None:
    entity = winner(quotas, user, client_id)
    limit = limits_of(quotas).resolve(user, client_id)
    assert limit == (entity and Limit(quotas[entity], shared_by(entity, user, client_id)))


@given(quotas, quotas, users, client_ids)
def test_shadow_entries_overlay_enforced_entries(
    enforced: dict[Entity, float], shadow: dict[Entity, float], user: str, client_id: str
) -> None:
    table = QuotaTable(
        {(entity, PRODUCE): value for entity, value in enforced.items()},
        {(entity, PRODUCE): value for entity, value in shadow.items()},
    )
    over = {**enforced, **shadow}
    entity = winner(over, user, client_id)
    limit = table.shadow_limits(PRODUCE).resolve(user, client_id)
    if not shadow or entity is None:
        assert limit is None
    else:
        assert limit == Limit(over[entity], shared_by(entity, user, client_id), entity in shadow)
    assert table.limits(PRODUCE).same_as(limits_of(enforced))


@given(quotas, quotas, users, client_ids)
def test_limits_with_prefixes_and_shadow_entries_are_found_by_their_tags(
    enforced: dict[Entity, float], shadow: dict[Entity, float], user: str, client_id: str
) -> None:
    plain, values = limits_of(enforced), {entity: QuotaValue(value) for entity, value in shadow.items()}
    for limits in (plain, plain.applied(values, shadow)):
        limit = limits.resolve(user, client_id)
        if limit is not None:
            wanted = limit.is_shadow or not shadow or limits.same_as(plain)
            assert limits.of(limit.tags) == (limit.value if wanted else None)


@given(quotas, users, client_ids, users, client_ids)
def test_a_prefix_budget_is_shared_by_exactly_the_matching_clients(
    quotas: dict[Entity, float], user: str, client_id: str, user_2: str, client_id_2: str
) -> None:
    limits = limits_of(quotas)
    one, other = limits.resolve(user, client_id), limits.resolve(user_2, client_id_2)
    entity, entity_2 = winner(quotas, user, client_id), winner(quotas, user_2, client_id_2)
    if one is None or other is None or entity is None or entity_2 is None:
        return
    if isinstance(entity.client_id, Prefix):
        share = entity == entity_2 and (entity.user is None or user == user_2)
        assert (one.tags == other.tags) is share
    if one.tags == other.tags:
        assert one.value == other.value


def test_names_of_quota_entries_are_not_replaced_in_overflow_tags() -> None:
    limits = limits_of({Entity(DEFAULT, Prefix("x" * 300)): 1.0})
    limit = limits.resolve("alice", "x" * 400)
    assert limit is not None
    names = limits.named("alice", "x" * 400)
    assert names == Tags("", "", client_id_prefix="x" * 300)
    assert bounded_tags(limit.tags, names) == limit.tags == Tags("alice", "", client_id_prefix="x" * 300)
    assert overflow_tags(limit.tags, names, "alice") == limit.tags


def cost(entities: list[Entity], client_id: str) -> int:
    limits = limits_of(dict.fromkeys(entities, 1.0))
    return calls_made(lambda: limits.resolve("alice", client_id))


@interpreted
def test_a_limit_lookup_costs_one_access_per_prefix_length() -> None:
    default = Entity(client_id=DEFAULT)
    plain = cost([default], "b12345")
    few = cost([Entity(client_id=Prefix("a00000")), default], "b12345")
    many = cost([*(Entity(client_id=Prefix(f"a{n:05}")) for n in range(10_000)), default], "b12345")
    assert few == many
    each = few - plain
    lengths = cost([*(Entity(client_id=Prefix("a" * n)) for n in range(1, 6)), default], "b12345")
    assert lengths == plain + 5 * each


def test_an_ip_limit_names_an_address_or_the_default() -> None:
    limits = limits_of({Entity(ip="10.0.0.1"): 5.0, Entity(ip=DEFAULT): 1.0})
    assert limits.resolve_ip("10.0.0.1") == Limit(5.0, Tags("", "", ip="10.0.0.1"))
    assert limits.resolve_ip("10.0.0.2") == Limit(1.0, Tags("", "", ip="10.0.0.2"))
    assert limits_of({Entity(ip="10.0.0.1"): 5.0}).resolve_ip("10.0.0.2") is None
    assert limits.of(Tags("", "", ip="10.0.0.2")) == 1.0


@given(quotas, users, client_ids)
def test_tags_lead_back_to_the_entry_that_applies(
    quotas: dict[Entity, float], user: str, client_id: str
) -> None:
    limits = limits_of(quotas)
    limit = limits.resolve(user, client_id)
    if limit is not None:
        assert limits.entry_of(limit.tags) == winner(quotas, user, client_id)
