"""Ids of topics, asked from fake brokers."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio

from tests.kfake.cluster import HOST, Cluster, Topic, up_to
from tests.kfake.in_trio import serve
from weir.protocol.api import ApiKey
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.replication import topic_ids
from weir.proxy.control.replication.cluster_connection import ClusterConnection
from weir.proxy.control.replication.topic_ids import ask_topic_ids
from weir.proxy.run import single

T = TypeVar("T")
ORDERS, PAYMENTS = uuid.UUID(int=1), uuid.UUID(int=2)


def play(cluster: Cluster, script: Callable[[ClusterConnection], Awaitable[T]], brokers: int = 1) -> T:
    async def main() -> T:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                scopes = [await nursery.start(serve, cluster, node_id) for node_id in range(brokers)]
                cluster.scopes = scopes  # type: ignore[attr-defined]  # for scripts that end one
                connection = ClusterConnection(lambda: list(cluster.nodes.values()), DIRECT, 5.0)
                result = await script(connection)
                await connection.aclose()
                nursery.cancel_scope.cancel()
        return result

    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        raise single(group) from None


def test_ids_of_topics_that_exist_are_told_on_one_connection() -> None:
    cluster = Cluster(topics={"orders": Topic(1, ORDERS), "payments": Topic(1, PAYMENTS)})

    async def script(connection: ClusterConnection) -> None:
        found = await ask_topic_ids(connection, ["orders", "missing"])
        assert found == ({ORDERS.bytes: "orders"}, "")
        cluster.add("orders", topic_id=uuid.UUID(int=3))
        assert (await ask_topic_ids(connection, ["orders"])).names == {b"\0" * 15 + b"\3": "orders"}

    play(cluster, script)
    metadata = (ApiKey.METADATA, 12)
    assert cluster.questions == [(ApiKey.API_VERSIONS, 0), metadata, metadata]


def test_brokers_without_metadata_v10_have_no_topic_ids() -> None:
    cluster = Cluster(topics={"orders": Topic(1, ORDERS)}, spoken=up_to({ApiKey.METADATA: 9}))
    assert play(cluster, lambda connection: ask_topic_ids(connection, ["orders"])) == ({}, "")
    assert cluster.questions == [(ApiKey.API_VERSIONS, 0)]


def test_a_topic_that_may_not_be_described_is_told_beside_the_ids_of_others() -> None:
    cluster = Cluster(topics={"orders": Topic(1, ORDERS)}, denied={"secret"})
    found = play(cluster, lambda connection: ask_topic_ids(connection, ["orders", "secret"]))
    assert found.names == {ORDERS.bytes: "orders"}
    assert found.missing.endswith("Weir's principal may not describe topic secret")


def test_a_question_for_ids_fails_if_no_broker_answers() -> None:
    cluster = Cluster()
    cluster.nodes[-1] = Address("127.0.0.1", 1)
    with pytest.raises(QuestionError, match=r"127\.0\.0\.1:1: connection refused"):
        play(cluster, lambda connection: ask_topic_ids(connection, ["orders"]), brokers=0)


def test_another_broker_is_asked_after_the_first_has_ended() -> None:
    cluster = Cluster(topics={"orders": Topic(1, ORDERS)})

    async def script(connection: ClusterConnection) -> None:
        await ask_topic_ids(connection, ["orders"])
        cluster.scopes[0].cancel()  # type: ignore[attr-defined]  # set by `play`
        assert (await ask_topic_ids(connection, ["orders"])).names == {ORDERS.bytes: "orders"}

    play(cluster, script, brokers=2)
    assert cluster.questions.count((ApiKey.API_VERSIONS, 0)) == 2


def test_a_silent_broker_is_asked_after_the_others() -> None:
    """Otherwise a question with a limit of time would never reach the second broker."""
    cluster = Cluster(topics={"orders": Topic(1, ORDERS)})

    async def script(connection: ClusterConnection) -> None:
        (silent,) = await trio.open_tcp_listeners(0, host=HOST)
        async with silent:
            cluster.nodes = {-1: Address(HOST, silent.socket.getsockname()[1]), **cluster.nodes}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(topic_ids, "IDS_S", 0.05)
                with pytest.raises(QuestionError, match="no answer within"):
                    await ask_topic_ids(connection, ["orders"])
            assert (await ask_topic_ids(connection, ["orders"])).names == {ORDERS.bytes: "orders"}

    play(cluster, script)
