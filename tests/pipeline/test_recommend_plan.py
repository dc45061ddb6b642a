"""Recommendations without Spark: parameters, factors, kept entries, and the file's lines."""

from __future__ import annotations

import doctest
import math
import tomllib
from dataclasses import replace
from datetime import UTC, date, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.strategies import byte_rates, tables, texts
from weir.pipeline.outcome import PipelineError
from weir.pipeline.recommend import capacity as recommend_capacity
from weir.pipeline.recommend import groups as recommend_groups
from weir.pipeline.recommend import plan as recommend_plan
from weir.pipeline.recommend.capacity import cap, lowered
from weir.pipeline.recommend.current import CurrentLimit, Kept, current_limit, kept
from weir.pipeline.recommend.file import lines
from weir.pipeline.recommend.groups import GroupProposal, named_alike
from weir.pipeline.recommend.notes import of_run
from weir.pipeline.recommend.plan import LEVELS, RecommendationPlan, everybody, is_of_level
from weir.pipeline.recommend.reasons import Row
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable, parse
from weir.quotas.table.entry_places import entry_spans
from weir.quotas.table.group_entry import GroupEntry
from weir.quotas.table.groups import Member
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_entry import comment

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUESTS, CONNECTIONS = QuotaKey.REQUEST_PERCENTAGE, QuotaKey.CONNECTION_CREATION_RATE
NOW = datetime(2026, 11, 22, tzinfo=UTC)
PLAN = RecommendationPlan(now=NOW, quotas=(PRODUCE, FETCH), current_name="quotas.toml")
ALL = (
    "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, old_read_byte_rate"
)
PAIRS = "user-client-id"

amounts = st.floats(0, 1e12)


@pytest.mark.parametrize("module", [recommend_plan, recommend_capacity, recommend_groups])
def test_docstring_examples_of_recommend_run(module: object) -> None:
    failed, attempted = doctest.testmod(module)  # type: ignore[arg-type]  # they are modules
    assert attempted
    assert not failed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"percentile": 98}, "percentile is 98, must be one of 50, 95, 99, 100"),
        ({"level": "topic"}, "level is topic, must be one of auto, user-client-id, user, client-id"),
        ({"headroom": math.nan}, "headroom is nan, must be at least 1"),
        ({"headroom": 0.9}, "headroom is 0.9, must be at least 1"),
        ({"growth": -0.1}, "growth is -0.1, must be at least 0"),
        ({"over_commitment": 0.0}, "over-commitment is 0, must be at least 0.01"),
        ({"hours_percentile": 100.5}, "hours-percentile is 100.5, must be from 0 to 100"),
        ({"min_active_hours": 0}, "min-active-hours is 0, must be at least 1"),
        ({"quotas": (CONNECTIONS,)}, f"quota is connection_creation_rate, must be one of {ALL}"),
        ({"quotas": ()}, "no quota to recommend: give --quotas"),
        (
            {"days": (date(2026, 1, 2), date(2026, 1, 1))},
            "days 2026-01-02..2026-01-01 end before they begin: exchange the two",
        ),
        ({"floors": {PRODUCE: 1.5}}, "floor of producer_byte_rate is 1.5, must be a whole number of bytes/s"),
        (
            {"floors": {REQUESTS: 0.0}},
            "floor of request_percentage is 0, must be from 4.94066e-324 to 9223372036854775807",
        ),
        (
            {"capacity": {PRODUCE: math.inf}},
            "capacity of producer_byte_rate is inf, must be from 1 to 9223372036854775807",
        ),
        (
            {"capacity": {CONNECTIONS: 5.0}},
            f"capacity's quota is connection_creation_rate, must be one of {ALL}",
        ),
        (
            {"capacity": {QuotaKey.CONTROLLER_MUTATION_RATE: 5.0}},
            "a capacity is given for controller_mutation_rate, which is not recommended: add it to --quotas",
        ),
    ],
)
def test_recommend_refuses_contradictory_parameters(options: dict[str, object], message: str) -> None:
    with pytest.raises(PipelineError) as error:
        RecommendationPlan(now=NOW, **options).check()  # type: ignore[arg-type]  # by name
    assert str(error.value) == message


@given(st.lists(st.tuples(amounts, amounts).map(sorted).map(tuple), min_size=1, max_size=20), amounts)
def test_cap_fills_the_room_exactly_unless_least_values_or_all_rates_decide(
    uses: list[tuple[float, float]], room: float
) -> None:
    def load(limit: float) -> float:
        return sum(max(least, min(rate, limit)) for least, rate in uses)

    found = cap(uses, room)
    if found == 0:
        assert load(0) >= room
    else:
        assert load(found) == pytest.approx(min(room, load(math.inf)), rel=1e-6, abs=1e-3)


def test_limit_lowered_in_the_fullest_hour_spares_others_in_the_next() -> None:
    """`big` alone is too large in both hours; `other` fits beside the lowered one."""
    limits = pl.DataFrame(
        {
            "limit": [225.0, 60.0, 90.0],
            "robust": [1.0, 1.0, 80.0],
            "full_broker": pl.Series([None] * 3, dtype=pl.Int64),
            "full_ms": pl.Series([None] * 3, dtype=pl.Int64),
        }
    )
    full = pl.DataFrame({"quota": "q", "broker": 3, "start_ms": [7, 8, 9], "room": [100.0, 100.0, 90.0]})
    uses = [(7, 0, 150.0), (7, 1, 10.0), (8, 0, 150.0), (8, 1, 50.0), (9, 0, math.inf), (9, 2, 85.0)]
    rows = pl.DataFrame(uses, ["start_ms", "entity", "demand"], orient="row")
    rows = rows.with_columns(quota=pl.lit("q"), broker=pl.lit(3, pl.Int64))
    found = lowered(limits, rows, full)
    # 100 - 10; then 100 - 50; then 10 beside 80, which nothing lowers
    assert found["limit"].to_list() == [10.0, 60.0, 80.0]
    assert found["full_ms"].to_list() == [9, None, 9]


NOWS = QuotaTable(
    {
        (Entity("alice"), PRODUCE): 1.0,
        (Entity("alice", "app"), PRODUCE): 2.0,
        (Entity("alice", Prefix("etl-")), PRODUCE): 3.0,
        (Entity(client_id="app"), PRODUCE): 4.0,
        (Entity(client_id=Prefix("etl-")), PRODUCE): 5.0,
        (Entity(DEFAULT, "tool"), PRODUCE): 6.0,
    }
)


@pytest.mark.parametrize(
    ("level", "user", "client_id", "expected"),
    [
        (PAIRS, "alice", "app", CurrentLimit(2.0, alone=True, named=True)),
        (PAIRS, "alice", "other", CurrentLimit(1.0, alone=False, named=False)),  # for all of alice
        (PAIRS, "alice", "etl-1", CurrentLimit(3.0, alone=True, prefix="etl-")),
        (PAIRS, "bob", "etl-1", CurrentLimit(5.0, alone=False, prefix="etl-")),  # for all users
        (PAIRS, "bob", "app", CurrentLimit(4.0, alone=False, named=False)),
        (PAIRS, "bob", "tool", CurrentLimit(6.0, alone=True, named=False)),  # each has a default's budget
        (PAIRS, "bob", "none", CurrentLimit(None)),
        ("user", "alice", None, CurrentLimit(1.0, alone=True, named=True)),
        ("user", "bob", None, CurrentLimit(None)),
        ("client-id", None, "app", CurrentLimit(4.0, alone=True, named=True)),
        ("client-id", None, "etl-2", CurrentLimit(5.0, alone=True, prefix="etl-")),
        ("client-id", None, "tool", CurrentLimit(None)),
    ],
)
def test_recommend_finds_the_current_limit_of_an_entity(
    level: str, user: str | None, client_id: str | None, expected: CurrentLimit
) -> None:
    assert current_limit(NOWS, PRODUCE, level, user, client_id) == expected


def test_the_value_unlimited_is_no_current_limit_and_takes_no_capacity() -> None:
    """It counted as 9.2e18 bytes/s: no floors fitted beside it, and a step from it was proposed."""
    table = parse("[[quota]]\nuser = 'a'\nclient_id = 'b'\nproducer_byte_rate = 'unlimited'\n")
    assert current_limit(table, PRODUCE, PAIRS, "a", "b") == CurrentLimit(None, alone=True, named=True)
    rest = kept(table, PLAN, PAIRS, [])
    assert rest.sums == {}
    assert parse("".join(lines([], [], replace(PLAN, with_default=False), PAIRS, rest))) == table


def test_default_entries_belong_to_no_recommended_level() -> None:
    for level in LEVELS:
        assert not is_of_level(everybody(level), level)
    assert is_of_level(Entity("a", Prefix("b")), PAIRS)
    assert not is_of_level(Entity("a"), PAIRS)
    assert not any(is_of_level(Entity(topic="t"), level) for level in LEVELS)


@given(tables, st.sampled_from(LEVELS), st.booleans())
def test_recommend_keeps_replaces_or_counts_every_current_quota(
    table: QuotaTable, level: str, with_default: bool
) -> None:
    plan = RecommendationPlan(now=NOW, quotas=(PRODUCE, FETCH), with_default=with_default)
    replaceable = [of for of in table.values if of[1] in plan.quotas and is_of_level(of[0], level)]
    seen = replaceable[::2]
    found = kept(table, plan, level, seen)
    stay = sum(map(len, found.rates.values()))
    assert stay + found.dropped + len(seen) == len(table.values)
    assert [entry[0] for entry in table.shadow_entities()] == [entry.entity for entry in found.shadow]
    for (entity, key), value in table.values.items():
        if key not in plan.quotas or entity.topic or entity.ip:
            assert found.rates[entity][key] == value


# The file.


def proposal(
    user: str, client_id: str | None, rate: float, reason: str, flags: list[str], prefix: str | None = None
) -> Row:
    pot = {"user": user, "client_id": client_id, "client_id_prefix": prefix}
    return {**pot, "quota": PRODUCE.value, "proposed": rate, "reason": reason, "flags": flags}


flags = st.lists(texts, max_size=2)
reasons = st.text()
names = st.tuples(texts, texts)


@given(st.text(), st.text())
def test_a_comment_in_a_recommended_file_is_one_line(before: str, text: str) -> None:
    line = comment(text)
    assert tomllib.loads(f"a = 1\n{line}\nb = 2\n") == {"a": 1, "b": 2}
    assert len(line.splitlines()) == 1
    assert entry_spans([line]) == []


@given(
    st.dictionaries(names, st.tuples(byte_rates, reasons, flags), max_size=5),
    st.text(),
    tables,
    st.booleans(),
)
def test_a_recommended_file_holds_proposals_the_default_and_kept_entries(
    proposals: dict[tuple[str, str], tuple[float, str, list[str]]],
    header: str,
    current: QuotaTable,
    with_default: bool,
) -> None:
    plan = RecommendationPlan(
        now=NOW, quotas=(PRODUCE, FETCH), current_name=header, with_default=with_default
    )
    seen = [(Entity(*its_names), PRODUCE) for its_names in proposals]
    rest = kept(current, plan, PAIRS, seen)
    rows = [
        proposal(user, client_id, rate, reason, its_flags)
        for (user, client_id), (rate, reason, its_flags) in proposals.items()
    ]
    table = parse("".join(lines([header], rows, plan, PAIRS, rest)))
    expected = {(entity, key): rate for entity, rates in rest.rates.items() for key, rate in rates.items()}
    expected |= {(Entity(*its_names), PRODUCE): rate for its_names, (rate, _, _) in proposals.items()}
    if with_default:
        expected |= {(Entity(DEFAULT, DEFAULT), key): 1_000_000.0 for key in plan.quotas}
    assert (table.values, table.shadow) == (expected, current.shadow)
    assert table.options(shadow=True) == current.options(shadow=True)
    for entity, _rates in table.entities():
        assert table.options_of(entity) == rest.options.get(entity, PLAIN)


def test_a_recommended_file_keeps_replication_throttles_and_groups_of_the_current_file() -> None:
    """Groups were left out, with their enforced quotas; the file was refused for their shadow quotas."""
    text = (
        '[[group]]\nname = "pay"\nusers = ["a", "svc-*"]\n[[quota]]\ngroup = "<all>"\nproducer_byte_rate = 8'
        '\n[[quota]]\ngroup = "pay"\nmode = "shadow"\nscope = "cluster"\nconsumer_byte_rate = 5\n'
        "[[replication]]\nbroker = 1\nleader.replication.throttled.rate = 5\n\n"
        '[[replication]]\ntopic = "orders"\nleader.replication.throttled.replicas = "*"\n'
    )
    current = parse(text)
    rest, plan = kept(current, PLAN, PAIRS, []), replace(PLAN, with_default=False)
    found = parse("".join(lines([], [], plan, PAIRS, rest)))
    assert (found, found.groups) == (current, current.groups)
    assert "4 values are kept from quotas.toml" in list(of_run(PLAN, PAIRS, rest))


def test_clients_named_alike_make_groups_by_their_longest_common_prefixes() -> None:
    users = ["svc-pay-1", "svc-pay-2", "svc-pay-3", "svc-a", "svc-b", "svc_c", "svc-d", "alice", "ANONYMOUS"]
    ids = ["etl.1", "etl.2", "etl.3", "a*-1", "a*-2", "a*-3", "<b>-1", "<b>-2", "<b>-3", "x/"]
    declared = parse("[[group]]\nname = 'old'\nusers = ['svc-d']\n").groups
    clients = [*((user, "etl.9") for user in users), *(("ANONYMOUS", each) for each in ids)]
    found = {str(member): len(clients) for member, clients in named_alike(clients, declared).items()}
    assert found == {"user svc-pay-*": 3, "client-id etl.*": 3 + 5}  # svc-a and svc-b are too few
    assert named_alike([(None, f"all-{number}") for number in range(9)], declared) == {}


def test_proposed_groups_are_comments_that_make_groups_when_uncommented() -> None:
    member = Member("user", 'a\n"-', True)
    group = GroupProposal(GroupEntry('a\n"', (member,)), 3, {PRODUCE: 5.0})
    text = "".join(lines([], [], replace(PLAN, with_default=False), PAIRS, Kept(), [group]))
    assert parse(text) == QuotaTable()
    found = parse("\n".join(line.removeprefix("# ") for line in text.splitlines()[2:]))
    assert found.values == {(Entity(group='a\n"'), PRODUCE): 5.0}
    assert dict(found.groups.members) == {member: 'a\n"'}


def test_kept_entries_keep_their_pacing_and_scope() -> None:
    plan, bob = RecommendationPlan(now=NOW, quotas=(PRODUCE,)), Entity("bob", "app")
    said = Options(Pacing.SMOOTH, Scope.CLUSTER, datetime(2099, 1, 1, tzinfo=UTC))
    current = QuotaTable(
        {(bob, PRODUCE): 5.0}, {(bob, FETCH): 5.0}, {(bob, PRODUCE): said}, {(bob, FETCH): said}
    )
    rest = kept(current, plan, PAIRS, [])
    table = parse("".join(lines([], [], plan, PAIRS, rest)))
    assert table.options_of(bob) == table.options_of(bob, shadow=True) == said


def test_the_entry_for_a_users_other_client_ids_keeps_its_options_without_its_end() -> None:
    """The entry was written without them, and later with the end, after which it would limit nobody."""
    others = Entity("bob", DEFAULT)
    said = Options(Pacing.SMOOTH, Scope.CLUSTER, datetime(2099, 1, 1, tzinfo=UTC))
    current = QuotaTable({(others, FETCH): 5.0}, options={(others, FETCH): said})
    plan = RecommendationPlan(now=NOW, quotas=(PRODUCE,))
    rest = kept(current, plan, PAIRS, [])
    table = parse("".join(lines([], [proposal("bob", None, 3e6, "p99", [])], plan, PAIRS, rest)))
    assert table.values[others, FETCH] == 5
    assert table.options_of(others) == said._replace(until=None)
