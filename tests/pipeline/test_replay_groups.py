"""Replays of groups from quota files, beside the chains that brokers use. No test runs Spark."""

from __future__ import annotations

import heapq
from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.pipeline.replay.candidates import Candidate, drawn
from weir.pipeline.replay.charges import uses
from weir.pipeline.replay.run import BudgetSettings, replayed
from weir.pipeline.tables import BY_QUOTA, CLIENT
from weir.quotas import BrokerQuotas, QuotaKey, parse
from weir.quotas.cluster_quotas import ClusterQuotas

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
GROUPS = """
[[group]]
name = "payments"
users = ["alice", "pay-*"]
parent = "retail"
[[group]]
name = "retail"
users = ["shop"]
"""
FILE = (
    GROUPS
    + """
[[quota]]
user = "alice"
producer_byte_rate = {own}
[[quota]]
group = "payments"
producer_byte_rate = {payments}
[[quota]]
group = "retail"
producer_byte_rate = 4000
pacing = "{pacing}"
scope = "{scope}"
[[quota]]
group = "<all>"
producer_byte_rate = 5000
scope = "cluster"
"""
)
FLOOR = """
[[quota]]
user = "shop"
producer_byte_floor = {floor}
scope = "cluster"
"""
USERS = ("alice", "pay-1", "pay-2", "shop", "other")
Request = tuple[int, str, int, float, int]
"""(time in ms, user, broker, bytes, throttle time in ms)"""


def replay(text: str, *requests: Request, others: tuple[str, ...] = ()) -> pl.DataFrame:
    """Return the hours of the candidate `q`, and of `others`."""
    told = [[wait * (name == PRODUCE.value) for name in BY_QUOTA.names] for *_about, wait in requests]
    records = pl.DataFrame(
        [
            ("main", "weir-1", user, "app", "produce", broker, at, USERS.index(user) * 10 + broker, value)
            for at, user, broker, value, _wait in requests
        ],
        ["cluster", "instance", *CLIENT, "api", "broker", "time_ms", "connection", "charged_bytes"],
        orient="row",
    ).with_columns(
        **dict.fromkeys(
            ("interval_ms", "answer_ms", "api_key", "strict", "mutations", "old_bytes"), pl.lit(0, pl.Int64)
        ),
        **dict.fromkeys(("requests", "sessions"), pl.lit(1, pl.Int64)),
        percent=pl.lit(0.0),
        told=pl.Series(told, dtype=pl.List(pl.Int64)),
        violated=pl.Series(told, dtype=pl.List(pl.Int64)),
    )
    files = [Candidate("q", text), *(Candidate(f"other {n}", other) for n, other in enumerate(others))]
    held_back = any(wait for *_about, wait in requests)
    clients = pl.DataFrame({"user": USERS, "client_id": ["app"] * len(USERS), "held_back": held_back})
    of_all = drawn(clients, files, "")
    found = uses(records, of_all)
    return replayed([(10**12, found)], of_all.budgets, BudgetSettings(), of_all.chains)


def waits(hours: pl.DataFrame, name: str = "q") -> dict[str, tuple[int, int]]:
    """Return group → (violations, sum of throttle times in ms) under a candidate."""
    its = hours.filter((pl.col("candidate") == name) & pl.col("group").is_not_null())
    summed = its.group_by("group").agg(pl.col("violations").sum(), pl.col("throttle_ms_upper").sum())
    return {group: (violations, ms) for group, violations, ms in summed.iter_rows()}


def test_replayed_member_below_its_floor_waits_for_no_group() -> None:
    """At 1000 bytes/s, 20,000 bytes take 20 s, and the first 10 s are free. A floor of 400 bytes/s frees 4000
    bytes. A further 1000 bytes wait 2.5 s for the floor, and would wait 16 s for the group.
    """
    group = GROUPS + '[[quota]]\ngroup = "retail"\nproducer_byte_rate = 1000\n'
    floor = group + '[[quota]]\nuser = "shop"\nproducer_byte_floor = 400\n'
    asked = [(0, "pay-1", 0, 20_000.0, 0), (0, "shop", 0, 4000.0, 0), (0, "shop", 0, 1000.0, 0)]
    hours = replay(floor, *asked, others=(group,))
    assert waits(hours) == {"retail": (2, 10_000 + 2500)}
    assert waits(hours, "other 0")["retail"][0] == 2, "the second request waits 14 s and is then alone"


@pytest.mark.parametrize(
    ("lower", "broker", "waited"),
    [
        ("", 0, (1, 5000)),
        ('user = "alice"\n', 0, (0, 0)),
        ('user = "alice"\n', 1, (1, 5000)),  # where her own budget is unused
        ('user = "alice"\nscope = "cluster"\n', 1, (1, 5000)),  # but this connection was told nothing
        ('group = "payments"\n', 0, (0, 0)),
    ],
)
def test_lower_limits_shape_what_reaches_the_replayed_group(
    lower: str, broker: int, waited: tuple[int, int]
) -> None:
    """10,000 bytes at 475 bytes/s are 11.05 s too many, after which the group has forgotten them."""
    rate = "[[quota]]\n{}producer_byte_rate = {}\n"
    text = GROUPS + rate.format('group = "retail"\nscope = "cluster"\n', 1000)
    asked = [(0, "alice", 0, 10_000.0, 0), (1000, "alice", broker, 5000.0, 0)]
    assert waits(replay(text + (rate.format(lower, 475) if lower else ""), *asked))["retail"] == waited


def test_replayed_brokers_have_lower_limits_of_their_own_below_a_group_of_the_cluster() -> None:
    """4000 bytes are within 475 bytes/s at each of two brokers, where together they would wait for 7 s."""
    text = GROUPS + '[[quota]]\ngroup = "retail"\nproducer_byte_rate = 1000\nscope = "cluster"\n'
    text += '[[quota]]\nuser = "alice"\nproducer_byte_rate = 475\n'
    asked = [(0, "alice", 0, 4000.0, 0), (0, "alice", 1, 4000.0, 0), (9000, "alice", 1, 3000.0, 0)]
    assert waits(replay(text, *asked))["retail"] == (1, 1000)


@pytest.mark.parametrize(("floor", "demand"), [(400, "recorded"), (300, "held back")])
def test_replayed_group_with_another_floor_has_a_range_if_its_members_were_held_back(
    floor: int, demand: str
) -> None:
    """The limit is that in force. So only the floor decides whether the recorded times are the demand."""
    text = GROUPS + '[[quota]]\ngroup = "retail"\nproducer_byte_rate = 1000\n'
    text += '[[quota]]\nuser = "shop"\nproducer_byte_floor = {}\n'
    asked = [(0, "pay-1", 0, 20_000.0, 10_000), (20, "shop", 0, 100.0, 0)]
    hours = replay(text.format(400), *asked, others=(text.format(floor),))
    of_group = hours.filter((pl.col("candidate") == "other 0") & (pl.col("group") == "retail"))
    assert of_group["demand"].to_list() == [demand]


@given(
    st.lists(
        st.tuples(st.sampled_from(USERS), st.integers(0, 1), st.integers(1, 20_000), st.integers(0, 4000)),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([500, 3000]),
    st.sampled_from([800, 3500]),
    st.sampled_from([0, 600, 4000]),
    st.sampled_from(["kafka", "smooth"]),
)
@settings(max_examples=15)
def test_replay_of_groups_gives_the_waits_that_brokers_told(
    sent: list[tuple[str, int, int, int]], own: int, payments: int, floor: int, pacing: str
) -> None:
    """Two brokers share the limit of all clients, and limits above a floor. Each client has one connection to
    each.
    """
    scope = "cluster" if floor else "broker"
    text = FILE.format(own=own, payments=payments, pacing=pacing, scope=scope)
    text += FLOOR.format(floor=floor) if floor else ""
    table = parse(text)
    cluster = ClusterQuotas()
    brokers = [BrokerQuotas.create(table, cluster=cluster) for _ in range(2)]
    queues: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for user, broker, size, pause_ms in sent:
        queues.setdefault((user, broker), []).append((size, pause_ms))
    events = [(queue[0][1], *place) for place, queue in queues.items()]
    heapq.heapify(events)
    asked: list[Request] = []
    while events:
        at_ms, user, broker = heapq.heappop(events)
        now_ms = max(at_ms, asked[-1][0] + 1) if asked else at_ms  # equal times would be put in another order
        size, _pause = queues[user, broker].pop(0)
        wait_ms = brokers[broker].ledger(user, "app", now_ms).charge_produce(size, now_ms)
        asked.append((now_ms, user, broker, float(size), wait_ms))
        if queue := queues[user, broker]:
            heapq.heappush(events, (now_ms + wait_ms + queue[0][1] + 1, user, broker))
    told, total_ms = Counter[str](), Counter[str]()
    for quotas in (*(each.produce for each in brokers), cluster.produce):
        for budget in quotas:
            if budget.tags.group and not budget.tags.client_id:
                told[budget.tags.group] += budget.throttled
                total_ms[budget.tags.group] += budget.throttle_ms_total
    expected = {group: (told[group], total_ms[group]) for group in told if total_ms[group]}
    found = {group: each for group, each in waits(replay(text, *asked)).items() if each[1]}
    assert found == expected
