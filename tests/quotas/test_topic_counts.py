"""Counting what exists with a prefix."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import Final

import pytest

from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.table.immutable_map import ImmutableMap
from weir.quotas.table.options import PLAIN
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.topic_counts import LATE, LATE_MAX, LATE_MS, LOST, UNDER_WAY_MS, TopicCounts, TopicGrowth

PAY: Final = Entity(topic_prefix="pay.")
TOPICS, PARTITIONS = QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX
BYTES: Final = QuotaKey.PRODUCER_BYTE_RATE


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


def test_a_lost_creation_counts_until_metadata_would_show_it() -> None:
    counts = counting(topics=1)
    counts.reserve([new("a"), new("b")], 0)
    counts.settle({"pay.a": LOST, "pay.b": LOST}, 10)
    counts.read({}, LATE_MS + 9)
    assert numbers(counts) == (1, 1)
    counts.read({}, LATE_MS + 10)
    assert numbers(counts) == (0, 0)


def test_a_topic_created_while_its_deletion_was_under_way_counts_until_metadata_decides() -> None:
    counts = counting(topics=1, a=1)
    for created_ms, number in ((6, 1), (5, 0)):
        counts.reserve([new("a")], 0)
        counts.settle({"pay.a": 1}, created_ms)
        counts.settle({"pay.a": 0}, 7, 5)
        assert numbers(counts) == (number, number)


def test_creations_under_way_are_bounded_in_shadow_and_the_oldest_leave_first() -> None:
    counts = TopicCounts()
    counts.use(QuotaTable(None, {(PAY, TOPICS): 1}))
    counts.read({}, 0)
    counts.reserve([new(str(number)) for number in range(LATE_MAX + 5)], 0)
    assert [(one.number, len(counts._under_way)) for one in counts.readings()] == [(LATE_MAX, LATE_MAX)]
    assert "pay.4" not in counts._under_way


def test_limits_of_a_large_table_are_found_without_walking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = QuotaTable({(PAY, TOPICS): 5} | {(Entity(user=f"u{n}"), BYTES): 1 for n in range(1000)})
    counts, walked = TopicCounts(), list[int]()
    counts.use(first)

    def items(walk: ImmutableMap[str, float]) -> ItemsView[str, float]:
        walked.append(len(walk))
        return dict(walk).items()

    monkeypatch.setattr(ImmutableMap, "items", items)
    changes = {(PAY, TOPICS): QuotaValue(7.0, PLAIN), (PAY, PARTITIONS): QuotaValue(9.0, PLAIN)}
    counts.use(first.applied(QuotaDelta(changes, {}, {}, {}, {})))
    assert max(walked) <= 1
    counts.read({}, 0)
    assert {(one.limit.key, one.limit.value) for one in counts.readings()} == {(TOPICS, 7), (PARTITIONS, 9)}


def test_one_topic_asked_for_twice_counts_once() -> None:
    counts = counting(topics=1)
    assert counts.reserve([new("a"), new("a"), new("b")], 0)[:2] == ["", ""]
    assert numbers(counts) == (1, 1)


def test_validation_counts_within_its_request_only() -> None:
    counts = counting(topics=2, a=1)
    assert list(map(bool, counts.reserve([new("b"), new("c")], 0, validate_only=True))) == [False, True]
    assert [(one.number, one.refused) for one in counts.readings()] == [(1, 0), (1, 0)]


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
