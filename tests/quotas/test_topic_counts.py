"""Counting what exists with a prefix."""

from __future__ import annotations

from typing import Final

from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.topic_counts import LATE, LATE_MS, UNDER_WAY_MS, TopicCounts, TopicGrowth

PAY: Final = Entity(topic_prefix="pay.")
TOPICS, PARTITIONS = QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX


def counting(topics: int = 2, partitions: int = 10, **sizes: int) -> TopicCounts:
    counts = TopicCounts()
    counts.use(QuotaTable({(PAY, TOPICS): topics, (PAY, PARTITIONS): partitions}))
    counts.read({f"pay.{name}": size for name, size in sizes.items()}, 0)
    return counts


def new(name: str, partitions: int = 1) -> TopicGrowth:
    return TopicGrowth(f"pay.{name}", 0, partitions)


def numbers(counts: TopicCounts) -> tuple[int, ...]:
    return tuple(reading.number for reading in counts.readings())


def test_a_refusal_names_the_entry_and_the_number() -> None:
    counts = counting(a=1, b=1)
    (reason,) = counts.reserve([new("c")], 0)
    assert reason.startswith("topics_max of topic prefix pay. is 2, and 2 topics exist or are being created")


def test_a_creation_under_way_counts_until_it_is_settled_or_a_minute_has_passed() -> None:
    counts = counting(partitions=10)
    assert counts.reserve([new("a", 6)], 0) == [""]
    assert counts.reserve([new("b", 5)], UNDER_WAY_MS - 1) != [""]
    assert counts.reserve([new("b", 5)], UNDER_WAY_MS) == [""]
    counts.settle({"pay.b": None}, UNDER_WAY_MS)
    assert counts.reserve([new("c", 10)], UNDER_WAY_MS) == [""]
    counts.settle({"pay.c": 10}, UNDER_WAY_MS)
    assert numbers(counts) == (1, 10)


def test_a_creation_counts_while_another_of_the_same_topic_fails() -> None:
    counts = counting(topics=1)
    assert counts.reserve([new("a")], 0) == counts.reserve([new("a")], 0) == [""]
    counts.settle({"pay.a": None}, 0)
    assert counts.reserve([new("b")], 0) != [""]
    counts.settle({"pay.a": None}, 0)
    assert counts.reserve([new("b")], 0) == [""]


def test_a_deletion_leaves_a_creation_under_way_but_none_that_is_late() -> None:
    counts = counting(topics=1, a=1)
    counts.reserve([new("a")], 0)
    counts.settle({"pay.a": 0}, 0)
    assert numbers(counts) == (1, 1)
    counts.settle({"pay.a": LATE}, 0)
    counts.reserve([new("a")], 0)
    counts.settle({"pay.a": None}, 0)
    assert numbers(counts) == (1, 1)
    counts.settle({"pay.a": 0}, 0)
    assert numbers(counts) == (0, 0)


def test_one_topic_asked_for_twice_counts_once() -> None:
    counts = counting(topics=1)
    assert counts.reserve([new("a"), new("a"), new("b")], 0)[:2] == ["", ""]
    assert numbers(counts) == (1, 1)


def test_validation_counts_within_its_request_only() -> None:
    counts = counting(topics=2, a=1)
    assert list(map(bool, counts.reserve([new("b"), new("c")], 0, validate_only=True))) == [False, True]
    assert numbers(counts) == (1, 1)


def test_metadata_that_is_late_brings_back_no_deleted_topic_and_hides_no_new_one() -> None:
    counts = counting(a=4, b=1)
    counts.settle({"pay.a": 0}, 0)
    counts.reserve([new("c", 3)], 0)
    counts.settle({"pay.c": 3}, 0)
    counts.read({"pay.a": 4, "pay.b": 1}, LATE_MS - 1)
    assert numbers(counts) == (2, 4)
    counts.read({"pay.a": 4, "pay.b": 1}, LATE_MS)
    assert numbers(counts) == (2, 5)


def test_a_topic_counts_for_each_prefix_it_has_and_shadow_entries_refuse_nothing() -> None:
    counts = TopicCounts()
    wide, shadow = Entity(topic_prefix="p"), Entity(topic_prefix="pay.eu.")
    counts.use(QuotaTable({(PAY, TOPICS): 5, (wide, PARTITIONS): 4}, {(shadow, TOPICS): 1}))
    counts.read({"pay.eu.a": 2, "plain": 1, "else": 9}, 0)
    assert list(map(bool, counts.reserve([new("eu.b", 2), new("eu.c")], 0))) == [True, False]
    found = {(one.limit.prefix, one.number, one.refused) for one in counts.readings()}
    assert found == {("pay.", 2, 0), ("p", 4, 1), ("pay.eu.", 2, 2)}


def test_nothing_is_refused_before_topics_are_known_and_what_was_admitted_counts() -> None:
    counts = TopicCounts()
    counts.use(QuotaTable({(PAY, TOPICS): 1}))
    assert counts.reserve([new("a"), new("b")], 0) == ["", ""]
    counts.read({}, 0)
    assert counts.reserve([new("c")], 0) != [""]


def test_growth_of_a_topic_that_metadata_has_not_shown_adds_its_new_partitions_only() -> None:
    counts = counting(topics=1, partitions=6, a=1)
    assert counts.reserve([TopicGrowth("pay.new", 3, 5)], 0) == [""]
    assert numbers(counts) == (2, 6)
