"""Why a client is limited as it is."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quotas.strategies import tables
from weir.quotas import DEFAULT, Entity, Explanation, Limit, Prefix, QuotaKey, QuotaTable, Tags, explain
from weir.quotas.table.ends import in_force_at
from weir.quotas.table.explain import QuotaExplanation, Verdict
from weir.quotas.table.groups import Member, QuotaGroups

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
MUTATIONS, CONNECTIONS = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.CONNECTION_CREATION_RATE
ALICE = Entity("alice")


def told(charge: QuotaExplanation) -> list[tuple[str, float | None, str]]:
    """Who, value and reason of each step that is not about a level without an entry."""
    return [
        (step.who, step.value, step.reason) for step in charge.steps if step.verdict is not Verdict.NO_ENTRY
    ]


def of(explanation: Explanation, key: QuotaKey, subject: str = "client") -> QuotaExplanation:
    return next(c for c in explanation.charges if c.key is key and c.subject == subject)


def test_explain_lists_every_quota_level_in_order() -> None:
    charge = of(explain(QuotaTable({(Entity(DEFAULT, DEFAULT), PRODUCE): 5.0}), "alice", "app"), PRODUCE)
    assert [(step.who, step.reason) for step in charge.steps] == [
        ("user alice, client-id app", "no entry"),
        ("user alice, client-id prefix", "no entry"),
        ("user alice, client-id <default>", "no entry"),
        ("user alice", "no entry"),
        ("user <default>, client-id app", "no entry"),
        ("user <default>, client-id prefix", "no entry"),
        ("user <default>, client-id <default>", "wins"),
        ("user <default>", "no entry"),
        ("client-id app", "no entry"),
        ("client-id prefix", "no entry"),
        ("client-id <default>", "no entry"),
    ]
    assert charge.limit == Limit(5.0, Tags("alice", "app"))
    assert charge.shared_by == "all connections of user alice with client-id app, at each broker"
    assert (charge.shadow, charge.shadow_shared_by) == (None, "")


def test_explain_shows_the_limits_on_what_exists_with_each_prefix_of_a_topic() -> None:
    wide, long, other = (Entity(topic_prefix=prefix) for prefix in ("pay.", "pay.eu.", "pay.us."))
    topics, partitions = QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX
    table = QuotaTable({(wide, topics): 5, (other, topics): 1, (wide, partitions): 9}, {(long, topics): 2})
    charges = [
        each for each in explain(table, "alice", "", topic="pay.eu.a").charges if "prefix" in each.subject
    ]
    found = [(each.subject, each.key, each.limit and each.limit.value, each.decides) for each in charges]
    assert found == [
        ("topic prefix pay.eu.", topics, None, ""),
        ("topic prefix pay.", partitions, 9, ""),
        ("topic prefix pay.", topics, 5, ""),
    ]
    assert charges[2].shared_by == "all topics that begin with pay., in the whole cluster"
    assert charges[0].shadow_shared_by == "all topics that begin with pay.eu., in the whole cluster"


def test_explain_counts_a_shadow_entry_that_would_win() -> None:
    table = QuotaTable(
        {(ALICE, PRODUCE): 1.0, (Entity(client_id="app"), FETCH): 2.0, (Entity(DEFAULT), MUTATIONS): 3.0},
        shadow={
            (ALICE, PRODUCE): 4.0,
            (Entity(client_id=DEFAULT), FETCH): 5.0,
            (Entity("alice", "app"), MUTATIONS): 6.0,
            (ALICE, MUTATIONS): 7.0,
        },
    )
    explanation = explain(table, "alice", "app")
    both, covered, before = (of(explanation, key) for key in (PRODUCE, FETCH, MUTATIONS))
    assert told(both) == [("user alice", 4.0, "shadow: counted, not enforced"), ("user alice", 1.0, "wins")]
    assert both.limit == Limit(1.0, Tags("alice", ""))
    assert both.shadow == Limit(4.0, Tags("alice", ""), is_shadow=True)
    assert told(covered) == [
        ("client-id app", 2.0, "wins"),
        ("client-id <default>", 5.0, "shadow: a more specific one wins, client-id app"),
    ]
    assert covered.shadow is None
    assert told(before) == [
        ("user alice, client-id app", 6.0, "shadow: counted, not enforced"),
        ("user alice", 7.0, "shadow: a more specific one wins, user alice, client-id app"),
        ("user <default>", 3.0, "wins"),
    ]
    assert before.shadow_shared_by == "all connections of user alice with client-id app, in the whole cluster"
    assert before.shared_by == "all connections of user alice, whatever the client-id, in the whole cluster"


def test_explain_adds_the_quotas_of_topics_and_addresses() -> None:
    table = QuotaTable(
        {
            (Entity(topic="orders"), FETCH): 1.0,
            (Entity(topic="payments"), FETCH): 2.0,
            (Entity(ip=DEFAULT), CONNECTIONS): 3.0,
            (Entity(ip="10.0.0.1"), CONNECTIONS): 4.0,
        }
    )
    explanation = explain(table, "alice", "app", ip="10.0.0.1", topic="orders")
    topic, ip = of(explanation, FETCH, "topic"), of(explanation, CONNECTIONS, "ip")
    assert told(topic) == [("topic orders", 1.0, "wins")]
    assert topic.limit == Limit(1.0, Tags("", "", topic="orders"))
    assert topic.shared_by == "all clients that fetch from topic orders, at each broker"
    assert of(explanation, PRODUCE, "topic").limit is None
    assert told(ip) == [
        ("ip 10.0.0.1", 4.0, "wins"),
        ("ip <default>", 3.0, "a more specific one wins, ip 10.0.0.1"),
    ]
    assert ip.shared_by == "all connections from 10.0.0.1, at each listener"


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        (Entity("alice", "app"), "all connections of user alice with client-id app"),
        (
            Entity("alice", Prefix("a")),
            "all connections of user alice whose client-id begins with a, together",
        ),
        (Entity(DEFAULT, DEFAULT), "all connections of user alice with client-id app"),
        (Entity(DEFAULT), "all connections of user alice, whatever the client-id"),
        (Entity(client_id="app"), "all connections with client-id app, of any user"),
        (
            Entity(client_id=Prefix("a")),
            "all connections whose client-id begins with a, together, of any user",
        ),
    ],
    ids=str,
)
def test_explain_names_the_clients_that_share_a_budget(entity: Entity, words: str) -> None:
    charge = of(explain(QuotaTable({(entity, PRODUCE): 1.0}), "alice", "app"), PRODUCE)
    assert charge.shared_by == f"{words}, at each broker"


names = st.sampled_from(["a", "b", "app", "été 日本 😀"])


@settings(max_examples=20)  # its tables are costly
@given(tables, names, names | st.just(""))
def test_explained_limits_are_the_limits_that_apply(table: QuotaTable, user: str, client_id: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    charges, table = explain(table, user, client_id, now=now).charges, in_force_at(table, now)
    for charge in charges:
        assert charge.limit == table.limits(charge.key).resolve(user, client_id)
        winners = [step.value for step in charge.steps if step.verdict is Verdict.WINS]
        assert winners == ([] if charge.limit is None else [charge.limit.value])
        counted = [step.value for step in charge.steps if step.verdict is Verdict.COUNTED]
        assert counted == ([] if charge.shadow is None else [charge.shadow.value])
        over = table.shadow_limits(charge.key).resolve(user, client_id)
        assert charge.shadow == (over if over is not None and over.is_shadow else None)


def test_explain_says_which_limit_of_the_chain_decides_and_above_which_floor() -> None:
    floor, everyone, payments = QuotaKey.PRODUCER_BYTE_FLOOR, Entity(group="<all>"), Entity(group="payments")
    groups = QuotaGroups().updated({Member("user", "alice"): "payments"}, {"payments": ""})
    values = {(payments, PRODUCE): 20.0, (everyone, PRODUCE): 200.0, (everyone, FETCH): 1.0}
    values |= {(ALICE, PRODUCE): 30.0, (ALICE, floor): 5.0}
    found = explain(QuotaTable(values, groups=groups), "alice", "app")
    (charge,) = (charge for charge in found.charges if charge.decides)
    assert (charge.subject, charge.key) == ("group payments", PRODUCE)
    assert charge.decides == (
        "the least of 3 limits, and the longest wait counts; other members use it, too. "
        "At or below the floor of 5 bytes/s no group decides"
    )
    alone = explain(QuotaTable({(everyone, PRODUCE): 9.0, (ALICE, floor): 5.0}), "alice", "app")
    assert [each.decides for each in alone.charges if each.decides] == [charge.decides.partition(". ")[2]]
