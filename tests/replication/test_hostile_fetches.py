"""Fetches that no Kafka broker sends: they end at the leader, in a response, or in the connection's end."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from tests.matrix import in_one_test
from tests.replication.conversation import LIMIT, TOPIC, Conversation
from tests.replication.leader import topic_id
from tests.replication.script import rate, replicas
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import FetchRequest
from weir.proxy.handlers.replication import replication
from weir.quotas.replication.throttles import Role

THROTTLED: Final = rate(Role.LEADER, 10 * LIMIT), replicas(Role.LEADER, TOPIC)


def asked(*partitions: int, offset: int = 0, limit: int = LIMIT) -> list[FetchRequest.FetchTopic]:
    """Partitions of the topic `t`."""
    named = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=limit)
        for index in partitions
    ]
    return [FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=named)]


def forgotten(*partitions: int) -> list[FetchRequest.ForgottenTopic]:
    """Partitions of the topic `t` to forget."""
    return [FetchRequest.ForgottenTopic(topic=TOPIC, topic_id=topic_id(TOPIC), partitions=list(partitions))]


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_partition_that_a_fetch_names_and_forgets_is_not_fetched_beside_its_throttle(version: int) -> None:
    talk = Conversation(version, THROTTLED)
    talk.fetch({0: 0})
    talk.answer({0: 100})
    assert talk.send(FetchRequest(topics=asked(1), forgotten_topics_data=forgotten(1))) == {}


@in_one_test
@pytest.mark.parametrize(("begun", "version"), [(12, 13), (13, 12), (7, 17), (17, 7)])
def test_a_fetch_session_ends_if_topics_are_named_by_ids_instead_of_names(begun: int, version: int) -> None:
    talk = Conversation(begun, THROTTLED)
    talk.fetch({0: 0})
    talk.answer({0: 100})
    talk.version = version
    assert talk.send(FetchRequest(topics=asked(0, 1))) is None
    assert talk.told() == {}
    assert talk.response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_number_of_remembered_topic_ids_without_a_name_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication, "UNKNOWN_MAX", 3)
    shared, called = replication.Replication(), []
    shared.on_unknown_topic = lambda: called.append(True)
    for number in (1, 1, 2, 3, 2, 3, 4, 4, 1):
        assert shared.name_of(number.to_bytes(16), 13) == ""
    assert len(called) == 5
    assert len(shared._unknown) == 2


@in_one_test
@pytest.mark.parametrize(("version", "limit"), product([3, 12, 17], [0, 1, 2**63 - 1]))
def test_no_number_in_a_replica_fetch_or_its_response_ends_the_connection(version: int, limit: int) -> None:
    int32, int64 = (-(2**31), 0, 2**31 - 1), (-(2**63), -1, 2**63 - 1)
    for wait_ms, number, offset, high_watermark in product(int32, int32, int64, int64):
        talk = Conversation(version, (rate(Role.LEADER, limit), replicas(Role.LEADER, TOPIC)))
        message = FetchRequest(max_wait_ms=wait_ms, min_bytes=number, max_bytes=number)
        message.topics = asked(0, 0, -1, 2**31 - 1, offset=offset, limit=number)
        assert talk.send(message) is not None  # the high watermarks are not known
        talk.answer({0: 10, -1: 10, 5: 10}, high_watermark)
        at_leader = talk.send(FetchRequest(max_wait_ms=wait_ms))
        held = talk.wire.connection.throttled_until_ms > talk.now_ms
        assert talk.wire.connection.effects.close_reason is None
        assert (at_leader is not None) + held + (talk.told() is not None) == 1
