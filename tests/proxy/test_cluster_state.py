"""State of a cluster's topics that connections share: its size and its lifetime are bounded."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from weir.protocol.values import ZERO_UUID
from weir.proxy.handlers.mutations import recent_topics
from weir.proxy.handlers.mutations.cluster_state import (
    HARMLESS_BYTES_MAX,
    HARMLESS_MAX,
    Asked,
    HarmlessRequests,
)
from weir.proxy.handlers.mutations.recent_topics import RecentTopics

KEPT_MS: Final = 15_000
"""Metadata were measured to be up to 13 s late."""
HARMLESS_MS: Final = 1000


def topic_id(number: int) -> UUID:
    return UUID(int=number)


def asked(number: int, length: int = 10) -> Asked:
    return 12, "alice", number.to_bytes(length, "big")


# Recent topics


def test_a_topic_is_remembered_for_15_seconds() -> None:
    topics = RecentTopics()
    topics.learn("made", 3, ZERO_UUID, 100)
    topics.learn("deleted", 0, ZERO_UUID, 100)
    last_ms = 100 + KEPT_MS - 1
    assert (topics.exists("made", last_ms), topics.is_gone("made", last_ms)) == (True, False)
    assert (topics.exists("deleted", last_ms), topics.is_gone("deleted", last_ms)) == (False, True)
    assert (topics.exists("made", last_ms + 1), topics.is_gone("deleted", last_ms + 1)) == (False, False)
    assert len(topics) == 0


def test_recent_topics_are_bounded_and_the_oldest_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_topics, "KEPT_MAX", 3)
    topics = RecentTopics()
    for number in (1, 2, 3):
        topics.learn(f"topic-{number}", number, topic_id(number), 0)
    assert len(topics) == 3
    topics.learn("topic-1", 9, ZERO_UUID, 1)  # the latest now
    topics.learn("topic-4", 4, topic_id(4), 2)
    assert [number for number in (1, 2, 3, 4) if topics.exists(f"topic-{number}", 3)] == [1, 3, 4]
    assert [topics.named(topic_id(number)) for number in (1, 2, 3, 4)] == [
        "topic-1",
        None,
        "topic-3",
        "topic-4",
    ]
    assert len(topics) == 3


def test_a_recent_topic_keeps_its_id_until_another_is_learnt() -> None:
    topics = RecentTopics()
    topics.learn("topic", 1, topic_id(1), 0)
    topics.learn("topic", 2, ZERO_UUID, 0)
    assert topics.named(topic_id(1)) == "topic"
    topics.learn("topic", 2, topic_id(2), 0)
    assert (topics.named(topic_id(1)), topics.named(topic_id(2))) == (None, "topic")


# Harmless requests


def test_a_harmless_request_is_remembered_for_a_second() -> None:
    requests = HarmlessRequests()
    requests.add(asked(1), 100)
    assert requests.has(asked(1), 100 + HARMLESS_MS - 1)
    assert not requests.has(asked(1), 100 + HARMLESS_MS)
    assert not requests.has(asked(2), 100)
    version, user, request = asked(1)
    assert not requests.has((version, "bob", request), 100)
    assert not requests.has((version - 1, user, request), 100)


def test_harmless_requests_are_bounded_and_then_all_forgotten() -> None:
    requests = HarmlessRequests()
    first = range(HARMLESS_MAX)
    for number in first:
        requests.add(asked(number), 0)
    assert all(requests.has(asked(number), 1) for number in first)
    requests.add(asked(HARMLESS_MAX), 0)
    assert not any(requests.has(asked(number), 1) for number in first)
    assert requests.has(asked(HARMLESS_MAX), 1)


def test_a_long_harmless_request_is_not_remembered() -> None:
    requests = HarmlessRequests()
    requests.add(asked(1, HARMLESS_BYTES_MAX), 0)
    requests.add(asked(1, HARMLESS_BYTES_MAX + 1), 0)
    assert requests.has(asked(1, HARMLESS_BYTES_MAX), 1)
    assert not requests.has(asked(1, HARMLESS_BYTES_MAX + 1), 1)
