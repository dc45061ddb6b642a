"""The broker store in front of fake brokers: what is mirrored, what is kept out, what fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio
from structlog.testing import capture_logs

from tests.kfake.client_quotas import QuotaCluster
from tests.kfake.cluster import up_to
from tests.kfake.in_trio import serve
from tests.proxy.following import Followed, until
from tests.proxy.throttles import BROKER_1
from weir.protocol.api import ApiKey
from weir.protocol.messages import DescribeClientQuotasResponse
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.stores import broker
from weir.proxy.control.stores.broker import BrokerStore
from weir.proxy.control.stores.store import StoreError, UnfitError
from weir.proxy.control.stores.wire_quotas import as_request
from weir.proxy.run import single
from weir.quotas import DEFAULT, Entity, QuotaTable
from weir.quotas.table.entities import Prefix
from weir.quotas.table.quota_table import QuotaKey

if TYPE_CHECKING:
    pass

T = TypeVar("T")
PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
ALICES = QuotaTable({(ALICE, PRODUCE): 1000.0})
LONG_S = 60.0


def play(cluster: QuotaCluster, script: Callable[[BrokerStore], Awaitable[T]], brokers: int = 1) -> T:
    async def main() -> T:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                scopes = [await nursery.start(serve, cluster, node_id) for node_id in range(brokers)]
                cluster.scopes = scopes  # type: ignore[attr-defined]  # for scripts that end one
                result = await script(BrokerStore([cluster.nodes[0]], DIRECT, 5.0))
                nursery.cancel_scope.cancel()
        return result

    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        raise single(group) from None


async def load(store: BrokerStore) -> QuotaTable:
    return await store.load()


# What is mirrored


def test_the_broker_store_mirrors_entities_of_every_type() -> None:
    cluster = QuotaCluster(
        stored=[
            ({"user": "alice", "client-id": None}, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}),
            ({"user": None}, {"controller_mutation_rate": 0.5, "request_percentage": 12.5}),
            ({"client-id": "app"}, {"producer_byte_rate": 3.0}),
            ({"client-id-prefix": "etl-"}, {"producer_byte_rate": 6.0}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 4.0}),
            ({"ip": None}, {"connection_creation_rate": 5.0}),
        ]
    )
    assert play(cluster, load) == QuotaTable(
        {
            (Entity(user="alice", client_id=DEFAULT), PRODUCE): 1.0,
            (Entity(user="alice", client_id=DEFAULT), CONSUME): 2.0,
            (Entity(user=DEFAULT), QuotaKey.CONTROLLER_MUTATION_RATE): 0.5,
            (Entity(user=DEFAULT), QuotaKey.REQUEST_PERCENTAGE): 12.5,
            (Entity(client_id="app"), PRODUCE): 3.0,
            (Entity(client_id=Prefix("etl-")), PRODUCE): 6.0,
            (Entity(ip="10.0.0.1"), CONNECTIONS): 4.0,
            (Entity(ip=DEFAULT), CONNECTIONS): 5.0,
        }
    )


def test_quotas_that_weir_cannot_hold_are_skipped_and_logged_once() -> None:
    cluster = QuotaCluster(
        stored=[
            ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 0.0, "new_rate": 1.0}),
            ({"user": "bob"}, {"producer_byte_rate": 0.0}),
            ({"client-id-prefix": None}, {"producer_byte_rate": 1.0}),
            ({"user": "bob", "client-id-prefix": None}, {"producer_byte_rate": 1.0}),
            ({"group": "g"}, {"producer_byte_rate": 1.0}),
            ({"user": "bob", "group": "g"}, {"producer_byte_rate": 1.0}),
            ({}, {"producer_byte_rate": 1.0}),
        ]
    )

    async def script(store: BrokerStore) -> QuotaTable:
        await store.load()
        cluster.stored.append(({"user": ""}, {"producer_byte_rate": 1.0}))
        await store.load()
        return await store.load()

    with capture_logs() as logs:
        assert play(cluster, script) == ALICES
    assert [(line["log_level"], line["count"]) for line in logs] == [("warning", 8), ("warning", 1)]
    assert logs[0]["first"] == (
        "user alice: request_percentage: "
        "request_percentage of user alice must be a finite number above 0, not 0.0"
    )


# Following


def follow(
    cluster: QuotaCluster, script: Callable[[BrokerStore, Followed], Awaitable[None]], brokers: int = 1
) -> None:
    async def with_follower(store: BrokerStore) -> None:
        followed = Followed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.follow, followed.changed, followed.failed)
            await script(store, followed)
            nursery.cancel_scope.cancel()

    play(cluster, with_follower, brokers)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "ASK_EVERY_S", 0.005)
    monkeypatch.setattr(broker, "SHARE", 0)


@pytest.mark.usefixtures("quick")
def test_the_broker_store_follows_changes_on_one_connection() -> None:
    cluster = QuotaCluster()

    async def script(_store: BrokerStore, followed: Followed) -> None:
        await until(lambda: followed.tables == [QuotaTable()])
        cluster.stored = [({"user": "alice"}, {"producer_byte_rate": 1000.0})]
        await until(lambda: followed.tables == [QuotaTable(), ALICES])
        asked = len(cluster.questions)
        await until(lambda: len(cluster.questions) > asked + 3)
        assert followed.tables == [QuotaTable(), ALICES], "nothing new is not told"
        assert cluster.questions.count((ApiKey.API_VERSIONS, 0)) == 1
        assert followed.failures == []

    follow(cluster, script)


@pytest.mark.usefixtures("quick")
def test_a_throttle_time_in_the_response_is_no_quota_change() -> None:
    cluster = QuotaCluster()

    async def script(_store: BrokerStore, followed: Followed) -> None:
        await until(lambda: len(followed.tables) == 1)
        throttled = DescribeClientQuotasResponse(throttle_time_ms=7, entries=[])
        cluster.handlers[ApiKey.DESCRIBE_CLIENT_QUOTAS] = throttled
        asked = len(cluster.questions)
        await until(lambda: len(cluster.questions) > asked + 2)
        assert len(followed.tables) == 1

    follow(cluster, script)


@pytest.mark.usefixtures("quick")
def test_the_broker_store_asks_another_broker_when_one_ends() -> None:
    cluster = QuotaCluster()

    async def script(_store: BrokerStore, followed: Followed) -> None:
        await until(lambda: len(followed.tables) == 1)
        cluster.scopes[0].cancel()  # type: ignore[attr-defined]  # set by play
        cluster.stored = [({"user": "alice"}, {"producer_byte_rate": 1000.0})]
        await until(lambda: followed.tables[-1] == ALICES)
        assert followed.failures == [], "it was named by the first one"

    follow(cluster, script, brokers=2)


@pytest.mark.usefixtures("quick")
def test_the_broker_store_reports_an_outage_and_its_end() -> None:
    cluster = QuotaCluster(stored=[({"user": "alice"}, {"producer_byte_rate": 1000.0})])

    async def script(_store: BrokerStore, followed: Followed) -> None:
        await until(lambda: len(followed.tables) == 1)
        cluster.garbage = b"\xff" * 8
        await until(lambda: len(followed.failures) > 1)
        assert len(followed.tables) == 1
        cluster.garbage = b""
        await until(lambda: followed.tables == [ALICES, ALICES])

    follow(cluster, script)


# Altering


@pytest.mark.usefixtures("quick")
def test_an_alteration_at_the_broker_returns_when_it_is_visible() -> None:
    cluster = QuotaCluster(
        stored=[({"user": "alice"}, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0})]
    )
    new = {
        (ALICE, PRODUCE): 1000.0,
        (BOB, QuotaKey.REQUEST_PERCENTAGE): 12.5,
        (Entity(ip=DEFAULT), CONNECTIONS): 5.0,
    }
    changes, expected = {**new, (ALICE, CONSUME): None}, QuotaTable(new)

    async def followed(store: BrokerStore, _followed: Followed) -> None:
        assert await store.alter(changes) == expected

    async def alone(store: BrokerStore) -> None:
        assert await store.alter(changes) == expected

    play(cluster, alone)
    follow(cluster, followed)


def test_a_brokers_refusal_is_passed_on_in_one_line() -> None:
    cluster = QuotaCluster(refusal="Quota must be\ngreater than 0")
    with pytest.raises(StoreError, match="the brokers refuse it: Quota must be greater than 0"):
        play(cluster, lambda store: store.alter({(ALICE, PRODUCE): 1.0}))


def test_an_alteration_that_never_becomes_visible_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "SETTLE_STEP_S", 0.001)
    with pytest.raises(StoreError, match="do not show it"):
        play(QuotaCluster(deaf=True), lambda store: store.alter({(ALICE, PRODUCE): 1.0}))


@pytest.mark.parametrize("entity", [Entity(topic="t"), Entity(client_id=Prefix("etl-"))])
def test_quotas_that_brokers_cannot_store_are_refused(entity: Entity) -> None:
    with pytest.raises(StoreError, match="Weir's own"):
        as_request({(entity, PRODUCE): 1.0})


def test_the_broker_store_refuses_replication_throttles_in_one_line() -> None:
    cluster = QuotaCluster()
    with pytest.raises(StoreError, match="set replication_throttles = brokers") as refused:
        play(cluster, lambda store: store.alter_replication({BROKER_1: "5"}))
    assert "\n" not in str(refused.value)


# What fails


def test_a_cluster_without_describeclientquotas_cannot_be_the_store() -> None:
    with pytest.raises(UnfitError, match=r"brokers before 2\.6"):
        play(QuotaCluster(spoken=up_to({ApiKey.METADATA: 1})), load)


def test_a_principal_without_describeconfigs_is_an_error_that_names_the_right() -> None:
    cluster = QuotaCluster(
        handlers={ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasResponse(error_code=31)}
    )
    with pytest.raises(UnfitError, match="DescribeConfigs on the cluster"):
        play(cluster, load)
