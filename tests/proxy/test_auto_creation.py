"""Topics that come into being by being asked for, under a mutation quota."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kfake.cluster import everything
from tests.kfake.controller import OK, UNKNOWN_TOPIC, Controller
from tests.mutations.requests import Create, Delete, Topic
from tests.proxy.mutation_cluster import BURST, Cluster, limited
from tests.proxy.playbook import Playbook
from tests.proxy.wire import new_connection
from tests.quotas.changes import put_in_force
from tests.wire.frames import body_of, request, response
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import CreateTopicsResponse, MetadataRequest, MetadataResponse
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.mutations import pending_creations
from weir.proxy.handlers.mutations.pending_creations import PENDING_MAX_EACH, PENDING_MS, PendingCreations
from weir.proxy.handlers.mutations.recent_topics import KEPT_MS
from weir.quotas import BrokerQuotas, Entity, MutationLedger, QuotaKey, QuotaTable

SIZE: Final = 3
"""Partitions of a topic that is created by being asked for."""
METADATA: Final = 3


class Creating(Cluster):
    """A controller that creates what is asked for, and Weir in front of it."""

    def __init__(self, metadata: VersionRange | None = None) -> None:
        spoken = everything()
        spoken[METADATA] = metadata or spoken[METADATA]
        super().__init__(controller=Controller(spoken=spoken, num_partitions=SIZE))

    def ask_for(
        self, now_ms: int, *names: str, version: int = 12, client_id: bytes = b"app", creating: bool = True
    ) -> tuple[dict[str, int], int]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=creating)
        (frame,) = self.connect().send(now_ms, request(asked, version, client_id=client_id))
        found = body_of(frame, MetadataResponse, version)
        assert {(each.host, each.port) for each in found.brokers} == {("weir", 19094)}
        return {each.name or "": each.error_code for each in found.topics}, found.throttle_time_ms


def ledger() -> MutationLedger:
    found = BrokerQuotas.create(limited()).mutation_ledger("ANONYMOUS", "app", 0)
    assert found is not None
    return found


VERSIONS: Final = [0, 1, 3, 4, 8, 9, 12]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_auto_created_topic_is_charged_at_its_clients_next_request(version: int) -> None:
    cluster = Creating()
    assert cluster.ask_for(0, "new", version=version) == ({"new": UNKNOWN_TOPIC}, 0)
    assert cluster.tokens == BURST
    assert cluster.ask_for(0, "new", version=version) == ({"new": OK}, 0)
    assert cluster.tokens == BURST - SIZE
    cluster.ask_for(0, "new", version=version)
    assert cluster.tokens == BURST - SIZE


@pytest.mark.parametrize("newest", [1, 2, 3, 4, 9])
def test_a_query_to_an_old_broker_names_no_topic_and_creates_none(newest: int) -> None:
    cluster = Creating(VersionRange(0, newest))
    version = min(newest, 9)
    cluster.ask_for(0, "new", version=version)
    cluster.ask_for(0, "other", version=version)
    assert cluster.tokens == BURST - SIZE


def test_a_client_over_its_quota_waits_the_throttle_time_of_auto_creation() -> None:
    cluster = Creating()
    cluster.ask_for(0, *(f"topic-{number}" for number in range(4)))
    connection = cluster.connect()
    topic = MetadataRequest.MetadataRequestTopic(name="topic-0")
    (frame,) = connection.send(0, request(MetadataRequest(topics=[topic]), 12))
    assert body_of(frame, MetadataResponse, 12).throttle_time_ms == 2000
    assert connection.connection.throttled_until_ms == 2000
    assert connection.connection.throttled_by is QuotaKey.CONTROLLER_MUTATION_RATE


def test_a_topic_made_by_createtopics_is_not_charged_again_as_auto_created() -> None:
    cluster = Creating()
    cluster.controller.creates = False
    cluster.ask_for(0, "new")
    made = Create((Topic("new", 4),))
    cluster.connect().send(0, made.frame("app"))
    assert cluster.ask_for(0, "new") == ({"new": OK}, 0)
    assert cluster.tokens == BURST - 4


def test_validate_only_does_not_prevent_the_charge_of_an_auto_created_topic() -> None:
    cluster = Creating()
    cluster.controller.creation_takes = 5
    cluster.ask_for(0, "new")
    checked = Create((Topic("new", 1),), validate_only=True)
    (frame,) = cluster.connect().send(0, checked.frame("app"))
    assert body_of(frame, CreateTopicsResponse, 7).topics[0].error_code == ErrorCode.NONE
    while cluster.ask_for(0, "new")[0] == {"new": UNKNOWN_TOPIC}:
        pass
    cluster.ask_for(0, "new")
    assert cluster.tokens == BURST - 1 - SIZE


def test_metadata_without_creations_is_checked_again_after_a_second_or_a_deletion() -> None:
    cluster = Creating()
    cluster.ask_for(0, "new")
    assert cluster.ask_for(10, "new") == ({"new": OK}, 0)
    before = cluster.tokens
    cluster.connect().send(20, Delete(("new",), version=5).frame("app"))
    cluster.ask_for(30, "new")
    assert cluster.ask_for(40, "new")[0] == {"new": OK}
    assert cluster.tokens == pytest.approx(before - 2 * SIZE, abs=0.2)  # deleted, and made again
    cluster.ask_for(KEPT_MS, "new")
    cluster.controller.topics.clear()  # past Weir, and later than what is remembered for late Metadata
    cluster.ask_for(KEPT_MS + 2000, "new")
    tokens = cluster.tokens
    assert cluster.ask_for(KEPT_MS + 2001, "new")[0] == {"new": OK}
    assert cluster.tokens == pytest.approx(tokens - SIZE, abs=0.2)


def test_a_created_topic_missing_from_metadata_is_charged_once() -> None:
    cluster = Creating()
    cluster.controller.creates = False
    cluster.connect().send(0, Create((Topic("new", 4),)).frame("app"))
    cluster.controller.lag.add("new")
    assert cluster.ask_for(5, "new")[0] == {"new": UNKNOWN_TOPIC}
    cluster.controller.lag.clear()
    assert cluster.ask_for(10, "new")[0] == {"new": OK}
    cluster.ask_for(20, "new")
    assert round(cluster.tokens) == BURST - 4


def test_a_deleted_topic_still_in_metadata_is_checked_again() -> None:
    cluster = Creating()
    cluster.ask_for(0, "new")
    cluster.ask_for(0, "new")
    topic = cluster.controller.topics["new"]
    cluster.connect().send(0, Delete(("new",)).frame("app"))
    cluster.controller.topics["new"] = topic  # metadata are late
    assert cluster.ask_for(1, "new")[0] == {"new": OK}
    del cluster.controller.topics["new"]
    cluster.ask_for(500, "new")
    cluster.ask_for(600, "new")
    assert cluster.tokens == pytest.approx(BURST - 3 * SIZE + 0.6, abs=0.2)


def test_missing_topics_of_one_client_are_not_charged_to_others() -> None:
    cluster = Creating()
    other = {(Entity(client_id=name), QuotaKey.CONTROLLER_MUTATION_RATE): 1.0 for name in ("app", "crowd")}
    put_in_force(cluster.quotas, QuotaTable(other))
    assert cluster.ask_for(0, "crowds", client_id=b"crowd")[0] == {"crowds": UNKNOWN_TOPIC}
    assert cluster.ask_for(0, "crowds")[0] == {"crowds": OK}
    cluster.controller.creates = False
    cluster.ask_for(0, *(f"invented-{number}" for number in range(PENDING_MAX_EACH + 5)), client_id=b"crowd")
    for number in range(12):
        cluster.ask_for(0, f"missed-{number}")
    assert cluster.tokens == BURST


def test_topics_auto_created_during_a_clients_pause_are_charged_afterwards() -> None:
    """Topics that came while their client was silent are charged when it is back."""
    cluster = Creating()
    cluster.ask_for(0, "one", "two")
    cluster.ask_for(2 * PENDING_MS, "three")
    assert cluster.tokens == BURST - 2 * SIZE


def test_a_missing_topic_that_is_not_created_in_time_is_forgotten() -> None:
    """Others may make it later."""
    cluster = Creating()
    cluster.controller.creates = False
    cluster.ask_for(0, "late")
    cluster.ask_for(PENDING_MS, "another")
    cluster.controller.add("late", 5)
    cluster.ask_for(PENDING_MS + 1, "another")
    assert cluster.tokens == BURST


def test_an_auto_created_topic_deleted_before_the_next_request_is_charged() -> None:
    cluster = Creating()
    cluster.ask_for(0, "new")
    cluster.connect().send(0, Delete(("new",)).frame("app"))
    assert "new" not in cluster.controller.topics
    assert cluster.tokens == BURST - 2 * SIZE


# Without tokens


@pytest.mark.parametrize("version", VERSIONS)
def test_automatic_creation_refuses_a_client_without_tokens(version: int) -> None:
    cluster = Creating()
    cluster.connect().send(0, Create((Topic("large", BURST + 1),)).frame("app"))
    assert cluster.tokens == -1
    for _ in range(3):
        assert cluster.ask_for(0, "new", version=version)[0] == {"new": UNKNOWN_TOPIC}
    assert "new" not in cluster.controller.topics
    cluster.ask_for(1000, "new", version=version)
    cluster.ask_for(1000, "new", version=version)
    assert "new" in cluster.controller.topics


def test_automatic_creation_counts_topics_that_may_still_come() -> None:
    """Else many requests at once create topics before the first of these is there and charged."""
    cluster = Creating()
    cluster.controller.creation_takes = 100
    for number in range(5):
        cluster.ask_for(0, *(f"new-{number}-{each}" for each in range(3)))
    coming = set(cluster.controller.coming)
    assert coming == {f"new-{number}-{each}" for number in range(4) for each in range(3)}


def test_automatic_creation_counts_topics_of_requests_that_the_broker_has_not_answered() -> None:
    """Else ten connections at once create 50 topics, where 10 tokens are left."""
    cluster = Creating()
    permitted = 0
    for number in range(10):
        names = [f"new-{number}-{each}" for each in range(5)]
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        asked = request(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12, client_id=b"app")
        wire = cluster.connect().wire
        wire.feed(0, client=asked)
        permitted += bytes(wire.to_broker).endswith(asked[-3:]) and names[0].encode() in wire.to_broker
    assert permitted == 3


def test_topics_of_requests_without_an_answer_count_for_a_while() -> None:
    expected, payer = PendingCreations(), ledger()
    first, other = expected.forwarded(payer, 5, 0), expected.forwarded(payer, 2, 1)
    assert expected.number(payer, 1) == 7
    expected.answered(first)
    assert expected.number(payer, PENDING_MS) == 2
    assert expected.number(payer, PENDING_MS + 1) == 0
    expected.answered(other)
    assert expected.number(payer, 0) == 0


def test_requests_whose_clients_have_left_without_an_answer_take_no_memory_for_long() -> None:
    """Each client-id of a client that leaves at once has a ledger of its own."""
    expected = PendingCreations()
    for number in range(100):
        expected.forwarded(ledger(), 5, number)
    assert len(expected._at_broker) == len(expected._topics_at_broker) == 100
    expected.forwarded(ledger(), 5, 100 + PENDING_MS)
    assert len(expected._at_broker) == len(expected._topics_at_broker) == 1


# Bounds


def test_each_client_has_a_bound_of_pending_automatic_creations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_creations, "PENDING_MAX_EACH", 3)
    expected, payer, other = PendingCreations(), ledger(), ledger()
    assert expected.add(["a", "b"], payer, 0) == 0
    assert expected.add(["b", "c", "d", "e"], payer, 10) == 2
    assert expected.add(["f"], other, 10) == 0
    assert (expected.looked_for(payer), expected.looked_for(other), len(expected)) == (
        ["a", "b", "c"],
        ["f"],
        4,
    )


def test_the_oldest_pending_automatic_creations_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_creations, "PENDING_MAX", 2)
    expected, payer = PendingCreations(), ledger()
    assert expected.add(["a", "b", "c"], payer, 0) == 0
    assert expected.looked_for(payer) == ["b", "c"]


def test_a_later_client_is_charged_once_the_first_pending_creation_expires() -> None:
    expected, first, second = PendingCreations(), ledger(), ledger()
    expected.add(["a"], first, 0)
    expected.add(["a"], second, PENDING_MS - 1)
    assert expected.looked_for(first) == ["a"]
    expected.add(["a"], second, PENDING_MS)
    assert (expected.looked_for(first), expected.looked_for(second)) == ([], ["a"])


def test_the_size_of_a_metadata_request_under_a_mutation_quota_is_bounded() -> None:
    names = [MetadataRequest.MetadataRequestTopic(name=f"{number:0200}") for number in range(3000)]
    asked = request(MetadataRequest(topics=names), 12)
    quotas = Creating().quotas
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        play.forwards(asked)
        told = response(MetadataResponse(), 12)
        play.returns(told)
