"""Rates of topics: who is charged, who waits, and what a change of the table leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weir.quotas import Entity, QuotaKey, QuotaTable, Tags
from weir.quotas.limiters.budgets import Budget
from weir.quotas.topics import TopicQuotas

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
A, B = Entity(topic="a"), Entity(topic="b")


def topics(table: QuotaTable) -> TopicQuotas:
    made = TopicQuotas()
    made.update(table)
    return made


def test_each_topic_has_a_rate_and_the_longest_throttle_counts() -> None:
    made = topics(QuotaTable({(A, PRODUCE): 100, (B, PRODUCE): 1000, (A, FETCH): 5}))
    assert made.produce.charge({b"a": 1000, b"b": 10_000, b"c": 10**9}, 0) == 0  # 10 s of each
    assert made.produce.charge({b"a": 100, b"b": 5000}, 0) == 5000
    assert made.fetch.charge({b"a": 50}, 0) == 0
    assert made.produce.throttled_until_ms(["a"]) == 1000
    assert made.produce.throttled_until_ms(["b", "c"]) == 5000
    assert made.produce.throttled_until_ms() == 5000
    assert made.fetch.throttled_until_ms() == 0


def test_a_topics_usage_survives_changes_of_rate_and_mode() -> None:
    made = topics(QuotaTable({}, {(A, PRODUCE): 10**9}))
    assert made.produce.charge({b"a": 1100}, 0) == 0
    made.update(QuotaTable({(A, PRODUCE): 100}))
    assert made.produce.charge({b"a": 0}, 0) == 1000
    made.update(QuotaTable({(A, PRODUCE): 1000}))
    assert made.produce.charge({b"a": 0}, 0) == 0
    made.update(QuotaTable())
    assert not made
    assert made.produce.charge({b"a": 10**9}, 0) == 0


@given(charges=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5000), st.integers(0, 3000))))
def test_a_topic_is_throttled_as_a_client_would_be(charges: list[tuple[str, int, int]]) -> None:
    made = topics(QuotaTable({(A, PRODUCE): 300, (B, PRODUCE): 700}))
    clients = {"a": Budget(Tags("", "a"), 300, 0), "b": Budget(Tags("", "b"), 700, 0)}
    now_ms = 0
    for name, size, gap_ms in charges:
        now_ms += gap_ms
        expected = clients[name].charge(size, now_ms)
        assert made.produce.charge({name.encode(): size}, now_ms) == expected
