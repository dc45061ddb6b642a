"""The broker store in front of fake brokers: what is mirrored, what is kept out, what fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio
from structlog.testing import capture_logs

from tests.proxy.fake_broker import FakeCluster
from tests.proxy.following import Followed, until
from tests.wire.frames import head_of, request_body_of, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
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
    from weir.protocol.values import Message

T = TypeVar("T")
PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
ALICES = QuotaTable({(ALICE, PRODUCE): 1000.0})
LONG_S = 20.0
Told = DescribeClientQuotasResponse

Stored = list[tuple[dict[str, str | None], dict[str, float]]]
"""(entity by type, values by key)."""


def told(stored: Stored) -> DescribeClientQuotasResponse:
    return Told(
        entries=[
            Told.EntryData(
                entity=[Told.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[Told.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in stored
        ]
    )


@dataclass
class QuotaCluster(FakeCluster):
    """Brokers that store client quotas."""

    stored: Stored = field(default_factory=list)
    modern: bool = True
    """It has the API."""
    questions: list[int] = field(default_factory=list)
    """API keys of what it was asked."""
    refusal: str | None = None
    """What alterations are answered."""
    deaf: bool = False
    """Takes alterations, and shows nothing of them."""

    async def _answer(self, frame: bytes) -> bytes:
        head = head_of(frame)
        self.questions.append(head.api_key)
        message: Message | None = None
        if head.api_key == ApiKey.API_VERSIONS:
            keys = [ApiKey.METADATA, *([ApiKey.DESCRIBE_CLIENT_QUOTAS] if self.modern else [])]
            version = ApiVersionsResponse.ApiVersion
            message = ApiVersionsResponse(
                api_keys=[version(api_key=key, min_version=0, max_version=1) for key in keys]
            )
        if head.api_key == ApiKey.DESCRIBE_CLIENT_QUOTAS:
            request = request_body_of(frame, DescribeClientQuotasRequest, head.version)
            assert (request.components, request.strict) == ([], False), "everything"
            message = self.answers.get(head.api_key) or told(self.stored)
        if head.api_key == ApiKey.ALTER_CLIENT_QUOTAS:
            message = self._alter(request_body_of(frame, AlterClientQuotasRequest, head.version))
        if message is None:
            return await super()._answer(frame)
        return response(message, head.version, head.correlation_id)

    def _alter(self, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        assert not request.validate_only
        entry = AlterClientQuotasResponse.EntryData
        if self.refusal is not None:
            return AlterClientQuotasResponse(entries=[entry(error_code=42, error_message=self.refusal)])
        for change in request.entries if not self.deaf else []:
            entity = {part.entity_type: part.entity_name for part in change.entity}
            values = next((values for known, values in self.stored if known == entity), None)
            if values is None:
                values = {}
                self.stored.append((entity, values))
            for operation in change.ops:
                values.pop(operation.key, None)
                if not operation.remove:
                    values[operation.key] = operation.value
        return AlterClientQuotasResponse(entries=[entry() for _change in request.entries])


def play(cluster: QuotaCluster, script: Callable[[BrokerStore], Awaitable[T]], brokers: int = 1) -> T:
    """Run a script with a store that knows the first broker."""

    async def main() -> T:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                scopes = [await nursery.start(cluster.serve, node_id) for node_id in range(brokers)]
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
            (Entity(ip="10.0.0.1"), CONNECTIONS): 4.0,
            (Entity(ip=DEFAULT), CONNECTIONS): 5.0,
        }
    )


def test_quotas_that_weir_cannot_hold_are_skipped_and_logged_once() -> None:
    cluster = QuotaCluster(
        stored=[
            ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 0.0, "new_rate": 1.0}),
            ({"user": "bob"}, {"producer_byte_rate": 0.0}),
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
    assert [(line["log_level"], line["count"]) for line in logs] == [("warning", 6), ("warning", 1)]
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
        assert cluster.questions.count(ApiKey.API_VERSIONS) == 1
        assert followed.failures == []

    follow(cluster, script)


@pytest.mark.usefixtures("quick")
def test_a_throttle_time_in_the_response_is_no_quota_change() -> None:
    cluster = QuotaCluster()

    async def script(_store: BrokerStore, followed: Followed) -> None:
        await until(lambda: len(followed.tables) == 1)
        cluster.answers[ApiKey.DESCRIBE_CLIENT_QUOTAS] = Told(throttle_time_ms=7, entries=[])
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


@pytest.mark.parametrize("entity", [Entity(topic="t"), Entity(client_id=Prefix("etl-"))])
def test_quotas_that_brokers_cannot_store_are_refused(entity: Entity) -> None:
    with pytest.raises(StoreError, match="Weir's own"):
        as_request({(entity, PRODUCE): 1.0})


# What fails


def test_a_cluster_without_describeclientquotas_cannot_be_the_store() -> None:
    with pytest.raises(UnfitError, match=r"brokers before 2\.6"):
        play(QuotaCluster(modern=False), load)


def test_a_principal_without_describeconfigs_is_an_error_that_names_the_right() -> None:
    cluster = QuotaCluster(answers={ApiKey.DESCRIBE_CLIENT_QUOTAS: Told(error_code=31)})
    with pytest.raises(UnfitError, match="DescribeConfigs on the cluster"):
        play(cluster, load)
