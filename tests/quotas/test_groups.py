"""Groups: membership, the chain of limiters, floors, and changes while clients are connected."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import first_core
from tests.quotas.group_world import LIMIT, SIZE, SimulatedMember, charge, simulate
from weir.quotas import BrokerQuotas, Budget, Entity, QuotaKey, QuotaTable
from weir.quotas.limiters.chain import Chain
from weir.quotas.limiters.smooth import SmoothBudget
from weir.quotas.table.entities import Tags
from weir.quotas.table.groups import GroupError, Member, QuotaGroups
from weir.quotas.table.quota_check import check
from weir.quotas.table.quota_delta import QuotaDelta

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
FLOOR = QuotaKey.PRODUCER_BYTE_FLOOR
MUTATIONS, REQUEST = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.REQUEST_PERCENTAGE


def groups(members: dict[Member, str], **parents: str) -> QuotaGroups:
    return QuotaGroups().updated(members, {**dict.fromkeys(members.values(), ""), **parents})


PAYMENTS = groups(
    {
        Member("user", "alice"): "payments",
        Member("user", "svc-", True): "others",
        Member("user", "svc-pay-", True): "payments",
        Member("client_id", "pay"): "payments",
        Member("client_id", "pay-", True): "others",
    },
    payments="retail",
    retail="",
)


@pytest.mark.parametrize(
    ("user", "client_id", "group"),
    [
        ("alice", "pay-1", "payments"),  # a user's name before anything else
        ("svc-pay-7", "x", "payments"),  # of two prefixes the longer one
        ("svc-pay", "pay", "others"),  # a user's prefix before a client-id
        ("bob", "pay", "payments"),
        ("bob", "pay-1", "others"),
        ("bob", "", None),
        ("", "", None),
    ],
)
def test_first_match_decides_the_group_of_a_client(user: str, client_id: str, group: str | None) -> None:
    member = PAYMENTS.member(user, client_id)
    assert (member and PAYMENTS.members[member]) == group


@pytest.mark.parametrize(
    "parents", [{"a": "b", "b": "a"}, {"a": "x"}, dict(zip("abcde", ["b", "c", "d", "e", ""], strict=True))]
)
def test_parents_that_are_unknown_or_in_a_circle_or_too_deep_are_refused(parents: dict[str, str]) -> None:
    with pytest.raises(GroupError):
        QuotaGroups().updated({}, parents).check()


def test_a_circle_of_very_many_groups_is_found_in_one_pass() -> None:
    names = [f"group-{number}" for number in range(20_000)]
    circle = dict(zip(names, [*names[1:], names[0]], strict=True))
    found = [error.group for error in QuotaGroups().updated({}, circle).faults()]
    assert found == names[:-3]  # the last three lead to the first, which has no parent then


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "ab", "abc"]), st.booleans(), st.sampled_from("xyz")), max_size=8
    )
)
@settings(max_examples=25)
def test_changed_groups_equal_groups_made_at_once(changes: list[tuple[str, bool, str]]) -> None:
    made, members = QuotaGroups(), dict[Member, str]()
    for name, is_prefix, group in changes:
        member = Member("user", name or "abcd", is_prefix)
        if group == "z":
            members.pop(member, None)
        else:
            members[member] = group
        made = made.updated({member: None if group == "z" else group}, {})
    at_once = QuotaGroups().updated(members, {})
    assert made == at_once
    for user in ("a", "abcd", "b"):
        assert made.member(user, "") == at_once.member(user, "")


def table(values: dict[tuple[Entity, QuotaKey], float], members: QuotaGroups = PAYMENTS) -> QuotaTable:
    return QuotaTable(values, groups=members)


def test_charge_goes_to_each_limiter_and_the_longest_wait_counts() -> None:
    rows = {
        (Entity("alice"), PRODUCE): 1000.0,
        (Entity(group="payments"), PRODUCE): 3000.0,
        (Entity(group="<all>"), PRODUCE): 2000.0,
    }
    ledger = BrokerQuotas.create(table(rows)).ledger("alice", "app", 0)
    assert isinstance(ledger.produce, Chain)
    # Taken singly, 25,000 bytes take 25 s, 8.3 s and 12.5 s, of which 10 s are free.
    assert ledger.charge_produce(25_000, 0) == 15_000
    assert [limiter.throttled_until_ms for limiter in ledger.produce.limiters] == [15_000, 0, 2500]
    assert ledger.produce.throttled_until_ms == 15_000
    assert ledger.produce.fetch_max_bytes == 10_000


def test_member_without_a_quota_of_its_own_waits_for_the_charges_of_other_members() -> None:
    quotas = BrokerQuotas.create(table({(Entity(group="payments"), FETCH): 1000.0}))
    assert quotas.ledger("alice", "app", 0).charge_fetch(15_000, 0) == 5000
    member, stranger = quotas.ledger("bob", "pay", 0), quotas.ledger("bob", "app", 0)
    assert member.fetch is not None
    assert member.fetch.tell_rest(1000) == 4000
    assert stranger.fetch is None


def test_client_without_a_group_has_no_chain() -> None:
    rows = {(Entity(group="payments"), PRODUCE): 1.0, (Entity("bob"), PRODUCE): 1.0}
    assert type(BrokerQuotas.create(table(rows)).ledger("bob", "app", 0).produce) is Budget


def test_renamed_client_ids_and_reconnects_are_charged_to_the_same_group() -> None:
    quotas = BrokerQuotas.create(table({(Entity(group="payments"), PRODUCE): 1000.0}))
    waits = [quotas.ledger("alice", f"new-{number}", 0).charge_produce(4000, 0) for number in range(4)]
    assert waits == [0, 0, 2000, 6000]


@pytest.mark.parametrize("user", ["alice", "svc-pay-1"])
def test_change_of_membership_takes_effect_while_clients_are_connected(user: str) -> None:
    before = table({(Entity(group="payments"), PRODUCE): 1000.0})
    quotas = BrokerQuotas.create(before)
    assert quotas.ledger(user, "app", 0).produce is not None
    generation = quotas.generation
    gone = {Member("user", "alice"): None, Member("user", "svc-pay-", True): None}
    quotas.use(before.applied(QuotaDelta(members=gone)))
    assert quotas.generation > generation
    assert quotas.ledger(user, "app", 0).produce is None


def test_group_in_shadow_counts_and_makes_nobody_wait() -> None:
    shadow = QuotaTable({}, {(Entity(group="payments"), PRODUCE): 1000.0}, groups=PAYMENTS)
    ledger = BrokerQuotas.create(shadow).ledger("alice", "app", 0)
    assert ledger.charge_produce(15_000, 0) == 0
    assert ledger.shadow is not None
    assert isinstance(ledger.shadow.produce, Chain)
    assert [limiter.throttle_ms_total for limiter in ledger.shadow.produce.limiters] == [5000]


@pytest.mark.parametrize("in_shadow", [False, True])
def test_member_below_its_floor_waits_for_no_group(in_shadow: bool) -> None:
    rows = {(Entity(group="<all>"), PRODUCE): 10_000.0, (Entity("canary"), FLOOR): 1000.0}
    before = table(rows)
    quotas = BrokerQuotas.create(before.in_shadow() if in_shadow else before)
    quotas.ledger("bulk", "app", 0).charge_produce(200_000, 0)
    canary = quotas.ledger("canary", "app", 0)
    limiter = canary.shadow.produce if canary.shadow is not None else canary.produce
    assert isinstance(limiter, Chain)
    assert (limiter.charge(10_000, 0), limiter.throttled_until_ms) == (0, 0)
    assert limiter.charge(1000, 0) == 1000  # above the floor, it waits until it is down to the floor
    assert limiter.tell_rest(400) == 600


def test_enforced_floor_counts_for_a_group_in_shadow() -> None:
    shadow = {(Entity(group="<all>"), PRODUCE): 10_000.0}
    quotas = BrokerQuotas.create(QuotaTable({(Entity("canary"), FLOOR): 1000.0}, shadow, groups=PAYMENTS))
    ledgers = [quotas.ledger(user, "app", 0).shadow for user in ("bulk", "canary")]
    for ledger, size in zip(ledgers, (200_000, 5000), strict=True):
        assert ledger is not None
        ledger.charge_produce(size, 0)
    (budget,) = [budget for budget in quotas.produce.shadow or () if not budget.tags.client_id]
    assert (budget.throttled, budget.charged) == (1, 205_000)


ALL_20MB = '[[quota]]\ngroup = "<all>"\nproducer_byte_rate = "20MB"\n'
CANARY_2MB = '[[quota]]\nuser = "canary"\nproducer_byte_floor = "2MB"\n'
ENDED, SHADOW = "until = 2001-01-01T00:00:00Z\n", 'mode = "shadow"\n'


def test_end_of_an_entry_makes_no_floor_a_mistake() -> None:
    for text in (
        ALL_20MB + ENDED + ALL_20MB.replace("20", "1") + SHADOW + CANARY_2MB,
        ALL_20MB + CANARY_2MB + ENDED + CANARY_2MB.replace("2MB", "50MB") + SHADOW,
    ):
        assert check(text.replace(ENDED, "")).mistakes == check(text).mistakes == []
        assert "above its producer_byte_rate" in check(text).warnings[-1]


def test_floor_of_a_default_is_refused() -> None:
    for name in ('user = "<default>"', 'user = "u"\nclient_id = "<default>"', 'client_id = "<default>"'):
        (mistake,) = check(CANARY_2MB.replace('user = "canary"', name)).mistakes
        assert "a floor is for a named user or client-id" in mistake


def test_check_warns_of_a_floor_that_is_above_the_limit_of_a_group_whose_clients_may_claim_it() -> None:
    group = '[[group]]\nname = "g"\n{} = ["User:bob"]\n' + ALL_20MB.replace("<all>", "g").replace("20", "1")
    floor = CANARY_2MB.replace("user", "client_id")
    assert check(group.format("client_ids") + floor).warnings == []
    first, second = check(group.format("users") + floor).warnings
    assert first == '[[group]] entry 1 (line 1): no client is user "User:bob"; leave out User:'
    assert "client-id canary is above the producer_byte_rate of group g, whose clients may have it" in second


def test_mutation_is_refused_if_any_budget_of_the_chain_refuses_it() -> None:
    rows = {(Entity("alice"), MUTATIONS): 10.0, (Entity(group="payments"), MUTATIONS): 1.0}
    quotas = BrokerQuotas.create(table(rows))
    ledger = quotas.mutation_ledger("alice", "app", 0)
    assert ledger == quotas.mutation_ledger("alice", "app", 0)
    assert ledger is not None
    assert ledger.enforced is not None
    charge = ledger.enforced.begin(strict=True)
    assert [charge.admit(20, 0), charge.admit(1, 0)] == [True, False]
    assert charge.finish(0) == 9000  # eleven tokens were there
    assert ledger.enforced.would_refuse([1], 0)
    own = quotas.mutations.known(Tags("alice", ""))
    assert own is not None
    assert (own.charged, own.refused) == (20, 0)


def test_request_time_of_members_adds_up() -> None:
    quotas = BrokerQuotas.create(table({(Entity(group="<all>"), REQUEST): 1.0}))
    ledgers = [quotas.ledger(user, "app", 0) for user in ("bob", "carol")]
    assert [ledger.charge_request(3, 100_000, 0) for ledger in ledgers] == [0, 1000]
    assert ledgers[0].request is not None
    assert ledgers[0].request.near


def test_parallel_fetches_of_members_are_all_paid_for() -> None:
    """At 1000 bytes/s, 150,000 bytes take 150 s. The first 10 s are free, and each member waits 140 s."""
    quotas = BrokerQuotas.create(table({(Entity(group="payments"), FETCH): 1000.0}))
    members = [quotas.ledger(user, "app", 0) for user in ("alice", "svc-pay-1", "svc-pay-2")]
    waits = [members[number % 3].charge_fetch(15_000, 0) for number in range(10)]
    assert waits == [15_000 * number - 10_000 for number in range(1, 11)]
    assert [member.fetch and member.fetch.tell_rest(0) for member in members] == [140_000] * 3


TREE = ("red", "blue", "green", "grey")
RATES = st.sampled_from([None, 500, 1000, 3000])


@given(
    st.fixed_dictionaries(dict.fromkeys("abcde", st.tuples(st.sampled_from(["", *TREE]), RATES, RATES))),
    st.fixed_dictionaries(
        {name: st.tuples(st.sampled_from(["", *TREE[:at]]), RATES) for at, name in enumerate(TREE)}
    ),
    RATES,
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 20_000), st.integers(0, 4000)), max_size=40),
)
@settings(max_examples=75)
def test_waits_of_random_trees_have_a_cause_and_are_those_of_the_limiters_taken_singly(
    users: dict[str, tuple[str, int | None, int | None]],
    tree: dict[str, tuple[str, int | None]],
    limit: int | None,
    charges: list[tuple[str, int, int]],
) -> None:
    """User → group, own rate, floor; group → parent, rate. Floors only shorten waits for groups, and lengthen
    those of others by a window at most.
    """
    rates: dict[Entity, int | None] = {Entity(user): rate for user, (_group, rate, _floor) in users.items()}
    rates |= {Entity(group=name): rate for name, (_parent, rate) in tree.items()}
    rates[Entity(group="<all>")] = limit
    values = {(entity, PRODUCE): float(rate) for entity, rate in rates.items() if rate}
    values |= {(Entity(user), FLOOR): float(floor) for user, (_group, _rate, floor) in users.items() if floor}
    has_floors = any(floor for _group, _rate, floor in users.values())
    members = groups(
        {Member("user", user): group for user, (group, _rate, _floor) in users.items() if group},
        **{name: parent for name, (parent, _rate) in tree.items()},
    )
    quotas, now_ms = BrokerQuotas.create(table(values, members)), 0
    single = {quota: Budget(Tags("", ""), rate, 0) for quota, rate in values.items()}
    for user, units, pause_ms in charges:
        now_ms += pause_ms
        group, chain = users[user][0], ["<all>"]
        while group:
            chain.append(group)
            group = tree[group][0]
        own, floor = ((Entity(user), key) for key in (PRODUCE, FLOOR))
        own_ms = single[own].charge(units, now_ms) if own in single else 0
        above = [(Entity(group=name), PRODUCE) for name in chain]
        group_ms = max((single[each].charge(units, now_ms) for each in above if each in single), default=0)
        floor_ms = single[floor].charge(units, now_ms) if floor in single else 10**9
        wait_ms = quotas.ledger(user, "app", now_ms).charge_produce(units, now_ms)
        least_ms = max(own_ms, min(group_ms, floor_ms))
        longer_ms = 10_000 if has_floors and group_ms else 0
        assert least_ms <= wait_ms <= max(own_ms, min(max(group_ms, longer_ms), floor_ms))


CROWDS = list(product((2, 50), (0.1, 25), (0.0, 0.5, 1.0)))


@pytest.mark.parametrize("kind", [Budget, SmoothBudget])
@pytest.mark.parametrize(("number", "demand", "floors"), first_core([*CROWDS[3:6], CROWDS[10], *CROWDS], 4))
def test_crowded_group_keeps_its_limit_and_the_floors(
    kind: type[Budget], number: int, demand: float, floors: float
) -> None:
    half = number // 2
    meek = [SimulatedMember(0.9 * floors / half, floors / half)] * (half if floors else 0)
    others = number - len(meek)
    used = simulate(meek + [SimulatedMember(demand / others)] * others, kind)
    below, above = used[: len(meek)], used[len(meek) :]
    assert max((each.longest_ms for each in below), default=0) == 0
    assert sum(each.rate for each in used) <= 1.05
    left = 1 - 0.9 * floors
    # Nobody is locked out: each gets a fifth of its equal share, and waits for a window at most.
    assert min(each.rate for each in above) >= 0.2 * min(demand, left) / others
    assert max(each.longest_ms for each in above) <= 10_000


@pytest.mark.parametrize("kind", [Budget, SmoothBudget])
def test_member_alone_gets_the_limit_of_its_group(kind: type[Budget]) -> None:
    (alone,) = simulate([SimulatedMember(25, 0.1, connections=4)], kind)
    assert 0.95 <= alone.rate <= 1.05


@pytest.mark.parametrize(
    ("kind", "floor", "demands", "others", "mean", "minute"),
    [
        (Budget, 0.45, [12.5] * 2, [0.08] * 25, 1.11, 1.4),
        (SmoothBudget, 0.04, [0.48] * 25, [0.1] * 50, 1.02, 1.13),
    ],
)
def test_members_that_want_more_than_their_floors_exceed_the_limit_by_a_documented_share(
    kind: type[Budget], floor: float, demands: list[float], others: list[float], mean: float, minute: float
) -> None:
    members = [SimulatedMember(demand, floor) for demand in demands]
    used = Counter(
        each.at_ms // 1000 for each in charge([*members, *map(SimulatedMember, others)], 615_000, kind)
    )
    totals = [sum(used[at_s] for at_s in range(begin_s, begin_s + 60)) for begin_s in range(15, 556)]
    assert max(totals) * SIZE <= minute * 60 * LIMIT
    assert sum(used[at_s] for at_s in range(15, 615)) * SIZE <= mean * 600 * LIMIT


@pytest.mark.parametrize(("number", "size"), [(10, 500_000), (50, 20_000)])
def test_consumers_share_equally_what_a_member_below_its_floor_leaves(number: int, size: int) -> None:
    group, floor = Budget(Tags("", "", group="g"), LIMIT, 0), Budget(Tags("canary", ""), 0.5 * LIMIT, 0)
    group.floors, others = Budget(Tags("", "", group="g"), LIMIT, 0), Chain(None, (group,))
    canary, turns_ms, used = Chain(None, (group,), floor), Counter[int](), Counter[int]()
    events = [(0, one) for one in range(-1, number)]
    while events[0][0] < 80_000:
        (at_ms, one), wait_ms = heapq.heappop(events), 0
        in_line = 0 < turns_ms[one] <= at_ms
        if one < 0:
            assert canary.charge_in_turn(0.0045 * LIMIT, at_ms) == 0  # 0.45 limits
        elif most := others.fetch_max_bytes_at(at_ms, in_line=in_line):
            wait_ms = others.charge_in_turn(min(most, size), at_ms)
            used[one] += min(most, size) * (at_ms >= 20_000)
        else:
            wait_ms = others.tell_rest(at_ms)
            turns_ms[one] = at_ms + wait_ms
        heapq.heappush(events, (at_ms + max(wait_ms, 10), one))
    assert 0.95 <= 0.45 + used.total() / LIMIT / 60 <= 1.05
    assert max(used.values()) <= 1.3 * min(used.values())


def test_use_below_floors_at_another_worker_lengthens_no_line() -> None:
    group, floors = Budget(Tags("", "", group="g"), 1000, 0), Budget(Tags("", "", group="g"), 1000, 0)
    group.floors = floors
    assert [group.charge_in_turn(12_000, 0), group.charge_in_turn(100, 0)] == [2000, 2100]
    floors.absorb(3000, 0)  # of 10 s: the others have 700 per second
    group.absorb(3000, 0)
    assert group.throttled_until_ms == 2100
    group.absorb(1400, 0)
    assert group.throttled_until_ms == 4100
    assert group.fetch_max_bytes_at(0, in_line=True) == 5900 * 700 // 2000
