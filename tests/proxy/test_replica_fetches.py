"""Fetches between brokers are exempt; a replica id sent by any other client changes nothing."""

from __future__ import annotations

import pytest

from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.playbook import Playbook
from tests.proxy.wire import Wire, new_connection, quota_table
from tests.wire.frames import framed, request
from tests.wire.messages import fetched, length_of
from weir.protocol.messages import FetchRequest
from weir.protocol.values import schema_of
from weir.proxy.handlers.replication.replica_fetcher import ReplicaFetcher, ReplicaFetches
from weir.proxy.handlers.replication.replica_fetches import REPLICA_FETCH_BYTES, replica_fetch_test
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas import DEFAULT, Budget, Entity, QuotaTable
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

VERSIONS = list(schema_of(FetchRequest).versions)
FROM_TAGGED = 15
"""The version from which on the replica id is in a tagged field (KIP-903)."""
KAFKA = frozenset({"kafka"})
QUOTA = 1000
"""Of every user, in bytes/s; nothing of it may be asked for at once beyond ten times as much."""


def table() -> QuotaTable:
    return quota_table(fetch=QUOTA, entity=Entity(DEFAULT))


def fetch(number: int, version: int, replica_id: int | None, max_bytes: int = QUOTA) -> bytes:
    wanted = FetchRequest(max_bytes=max_bytes, max_wait_ms=500)
    if replica_id is None:
        pass
    elif version < FROM_TAGGED:
        wanted.replica_id = replica_id
    else:
        wanted.replica_state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=5)
    return request(wanted, version, number)


def playbook(user: str, brokers: frozenset[str] | None = KAFKA, table_: QuotaTable | None = None) -> Playbook:
    connection = new_connection(table_ or table(), brokers=brokers)
    connection.client.become(user)
    return Playbook(connection=connection)


def charged(play: Playbook) -> float:
    budgets: list[Budget] = list(play.connection.quotas.fetch)
    return sum(budget.charged for budget in budgets)


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("replica_id", [None, -1, -2])
def test_a_brokers_fetch_without_a_replica_id_is_charged(version: int, replica_id: int | None) -> None:
    with playbook("kafka") as play:
        for number in (1, 2):  # the second is not taken to be as the first
            asked = fetch(number, version, replica_id)
            play.forwards(asked)
            told = fetched(number, 100, version=version)
            play.returns(told)
            assert charged(play) == number * (length_of(told) - (version >= 12))
        play.forwards(fetch(3, version, 2))


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("user", "brokers"),
    [("ANONYMOUS", KAFKA), ("mallory", KAFKA), ("kafka", None)],
    ids=["before authentication", "another user", "a listener of clients"],
)
def test_a_clients_fetch_with_a_replica_id_is_charged(
    version: int, user: str, brokers: frozenset[str] | None
) -> None:
    with playbook(user, brokers) as play:
        asked = fetch(1, version, 2)
        play.forwards(asked)
        told = fetched(1, 50_000, version=version)
        play.broker(told)
        size = length_of(told) - (version >= 12)
        assert charged(play) == size
        play.muted_until(size - 10_000)
        play.wire.to_client.clear()
        play.client(fetch(2, version, 2))


def test_replica_fetches_are_exempt_only_under_a_brokers_principal() -> None:
    with playbook("mallory") as play:
        play.relays(fetch(1, 17, 2), fetched(1, 100, version=17))
        assert charged(play) > 0
        before = charged(play)
        play.connection.client.become("kafka")
        play.relays(fetch(2, 17, 2), fetched(2, 100, version=17))
        assert charged(play) == before
        play.connection.client.become("mallory")
        play.relays(fetch(3, 17, 2), fetched(3, 100, version=17))
        assert charged(play) > before


def test_a_replica_fetch_before_the_login_is_not_believed() -> None:
    """A broker with a SASL listener answers such a fetch by the end of the connection. Without the login
    anyone could tell the offsets of a follower, and so end its throttle.
    """
    topic, throttled = "t", ConfigKey(ResourceType.TOPIC, "t", Role.LEADER.replicas_key)
    quotas = ReplicationQuotas(ReplicationThrottles({throttled: "*"}))
    connection = new_connection(node_id=1, brokers=frozenset())
    connection.state_of(ReplicaFetches).fetcher = ReplicaFetcher(Replication(quotas), 1)
    connection.plans.identities.behind_sasl.add(1)
    named = FetchRequest.FetchTopic(
        topic=topic, partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=2**62)]
    )
    claimed = request(FetchRequest(replica_id=2, topics=[named]), 12)
    with Playbook(connection=connection) as play:
        play.forwards(claimed)
        assert not quotas.progress
        play.wire.to_broker.clear()
        play.returns(fetched(1, 0, version=12))
        connection.client.become("kafka")
        play.client(claimed)
        play.wire.to_broker.clear()
        assert list(quotas.progress) == [(topic, 0, 2)]


# Reading the claim


@pytest.mark.parametrize("version", VERSIONS)
def test_the_replica_id_is_found_in_any_fetch_request_cut_anywhere(version: int) -> None:
    whole = bytearray(request(sample(FetchRequest, version), version))
    flexible = version >= 12
    message = sample(FetchRequest, version)
    expected = message.replica_id if version < FROM_TAGGED else message.replica_state.replica_id
    find = replica_fetch_test(version, flexible=flexible)
    assert find(whole, 0, len(whole), True) is (expected >= 0)
    found = {find(whole, 0, end, False) for end in range(14, len(whole))}
    assert found <= {None, expected >= 0}


def test_a_brokers_fetch_larger_than_the_buffer_counts_as_a_replica_fetch() -> None:
    topics = [FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition()] * 20_000)]
    asked = request(FetchRequest(topics=topics), 17)
    assert len(asked) > 2 * 256 * 1024 > REPLICA_FETCH_BYTES
    for user, counted in (("kafka", False), ("mallory", True)):
        connection = new_connection(table(), brokers=KAFKA)
        connection.client.become(user)
        wire = Wire(connection)
        wire.feed(0, client=asked)
        assert connection.effects.close_reason is None
        wire.feed(0, broker=fetched(1, 100, version=17))
        budgets: list[Budget] = list(connection.quotas.fetch)
        assert (sum(budget.charged for budget in budgets) > 0) is counted


@pytest.mark.parametrize("tags", [b"\x01", b"\x01\x01", b"\xff\xff\xff\xff\x07", b"\xff" * 6])
def test_a_broker_s_fetch_whose_tags_cannot_be_is_taken_for_a_consumer_s(tags: bytes) -> None:
    asked = framed(request(FetchRequest(max_bytes=QUOTA), 17)[4:-1] + tags)
    with playbook("kafka") as play:
        play.forwards(asked)
        assert play.connection.in_flight[0].ledger is not None, "its response is charged"
