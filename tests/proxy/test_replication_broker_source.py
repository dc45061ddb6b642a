"""Replication throttles that fake brokers keep."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from tests.kfake.cluster import Topic, up_to
from tests.kfake.configs import BROKER, TOPIC, ConfigCluster
from tests.kfake.in_trio import serve
from tests.proxy.following import FollowedThrottles, until
from weir.protocol.api import ApiKey
from weir.protocol.messages import DescribeConfigsRequest
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.replication import broker_source
from weir.proxy.control.replication.broker_source import BrokerSource
from weir.proxy.run import single
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

if TYPE_CHECKING:
    pass

LONG_S = 60.0
LEADER_RATE, FOLLOWER_RATE = Role.LEADER.rate_key, Role.FOLLOWER.rate_key
LEADER_LIST, FOLLOWER_LIST = Role.LEADER.replicas_key, Role.FOLLOWER.replicas_key
OF_ALL, STATIC, DEFAULT = 3, 4, 5
"""DescribeConfigsResponse.ConfigSource of Kafka's clients."""


def follow(
    cluster: ConfigCluster,
    script: Callable[[BrokerSource, FollowedThrottles], Awaitable[None]],
    brokers: int = 2,
    period_s: float = 1000.0,
) -> None:
    """Run a script beside a source that follows the cluster. Broker 0 is the first of `brokers`."""

    async def main() -> None:
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                scopes = [await nursery.start(serve, cluster, node_id) for node_id in range(brokers)]
                cluster.scopes = scopes  # type: ignore[attr-defined]  # for scripts that end one
                addresses = list(cluster.nodes.values())
                source, followed = BrokerSource(lambda: addresses, DIRECT, 5.0, period_s), FollowedThrottles()
                nursery.start_soon(source.follow, followed.changed, followed.failed)
                await script(source, followed)
                nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise single(group) from None


def first(cluster: ConfigCluster, brokers: int = 2) -> FollowedThrottles:
    """Return the throttles and failures of the first read."""
    told: list[FollowedThrottles] = []

    async def script(_source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(followed.has_told)
        told.append(followed)

    follow(cluster, script, brokers)
    return told[0]


def described(cluster: ConfigCluster) -> list[list[tuple[int, str]]]:
    return [
        [(each.resource_type, each.resource_name) for each in asked.resources]
        for asked in cluster.messages_of(DescribeConfigsRequest)
    ]


def throttled_cluster() -> ConfigCluster:
    """A cluster with each kind of throttle, and values that are no throttles of these resources."""
    return ConfigCluster(
        topics={"orders": Topic(1, uuid.UUID(int=1)), "payments": Topic(1, uuid.UUID(int=2))},
        configs={
            (TOPIC, "orders"): {LEADER_LIST: "0:0", FOLLOWER_LIST: "0:1"},
            (TOPIC, "payments"): {LEADER_LIST: "", FOLLOWER_LIST: ""},
            (BROKER, "0"): {LEADER_RATE: "1000", FOLLOWER_RATE: "3000"},
            (BROKER, "1"): {LEADER_RATE: "9223372036854775807", FOLLOWER_RATE: "7"},
            (BROKER, ""): {FOLLOWER_RATE: "3000"},
        },
        sources={
            ((TOPIC, "payments"), LEADER_LIST): DEFAULT,
            ((TOPIC, "payments"), FOLLOWER_LIST): DEFAULT,
            ((BROKER, "0"), FOLLOWER_RATE): OF_ALL,
            ((BROKER, "1"), LEADER_RATE): DEFAULT,
            ((BROKER, "1"), FOLLOWER_RATE): STATIC,
        },
    )


THROTTLES = ReplicationThrottles(
    {
        ConfigKey(ResourceType.TOPIC, "orders", LEADER_LIST): "0:0",
        ConfigKey(ResourceType.TOPIC, "orders", FOLLOWER_LIST): "0:1",
        ConfigKey(ResourceType.BROKER, "0", LEADER_RATE): "1000",
        ConfigKey(ResourceType.BROKER, "", FOLLOWER_RATE): "3000",
    }
)


def test_throttles_that_were_set_are_read_and_inherited_values_are_not() -> None:
    followed = first(throttled_cluster())
    assert (followed.throttles, followed.failures) == ([THROTTLES], [])


def test_each_broker_is_asked_for_its_own_rates() -> None:
    cluster = throttled_cluster()
    first(cluster)
    of_brokers = [asked for asked in described(cluster) if asked[0][0] == BROKER]
    assert sorted(of_brokers) == [[(BROKER, "0"), (BROKER, "")], [(BROKER, "1"), (BROKER, "")]]


def test_topics_are_described_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_source, "TOPICS_MAX", 2)
    topics = {f"t{number}": Topic(1, uuid.UUID(int=number)) for number in range(5)}
    cluster = ConfigCluster(topics=topics, configs={(TOPIC, "t4"): {LEADER_LIST: "*"}})
    followed = first(cluster, brokers=1)
    assert [len(asked) for asked in described(cluster) if asked[0][0] == TOPIC] == [2, 2, 1]
    assert followed.throttles[0].topics == {"t4"}


@pytest.mark.parametrize("versions", [{}, {ApiKey.DESCRIBE_CONFIGS: 0}])
def test_brokers_before_1_1_are_told_to_need_zookeeper(versions: dict[ApiKey, int]) -> None:
    followed = first(ConfigCluster(spoken=up_to({ApiKey.METADATA: 5, **versions})), brokers=1)
    (failure,) = followed.failures
    assert failure.endswith("brokers before 1.1 do not tell replication throttles: read them from ZooKeeper")


def test_throttles_are_read_again_after_the_period() -> None:
    cluster = throttled_cluster()

    async def script(_source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(followed.has_told)
        cluster.configs.clear()
        await until(lambda: followed.throttles[-1] == ReplicationThrottles())

    follow(cluster, script, period_s=0.01)


def test_throttles_are_read_again_soon_after_an_alteration_until_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers may learn the alteration later than the first read."""
    monkeypatch.setattr(broker_source, "SETTLE_S", (0.0, 0.0, 0.0))
    cluster = throttled_cluster()

    async def script(source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(followed.has_told)
        source.altered()
        await until(lambda: len(followed.throttles) == 2)
        cluster.configs.clear()
        await until(lambda: len(followed.throttles) == 4)
        assert followed.throttles[-1] == ReplicationThrottles()

    follow(cluster, script)


def test_rates_of_a_broker_that_does_not_answer_are_kept() -> None:
    cluster = throttled_cluster()
    cluster.configs[BROKER, "1"] = {LEADER_RATE: "5"}
    cluster.sources.clear()
    own = ConfigKey(ResourceType.BROKER, "1", LEADER_RATE)

    async def script(_source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(followed.has_told)
        cluster.scopes[1].cancel()  # type: ignore[attr-defined]  # set by `follow`
        cluster.configs[BROKER, "0"][LEADER_RATE] = "8"
        await until(lambda: bool(followed.failures))
        assert followed.throttles[-1].values[own] == "5"
        assert followed.throttles[-1].rate(Role.LEADER, 0) == 8
        assert f"{cluster.nodes[1]}: connection refused" in followed.failures[0]

    follow(cluster, script, period_s=0.05)


def test_lists_of_a_topic_that_cannot_be_described_are_kept_and_the_reason_is_logged_once() -> None:
    cluster = throttled_cluster()

    async def script(_source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(followed.has_told)
        cluster.denies = {(TOPIC, "orders")}
        told = len(followed.throttles)
        await until(lambda: len(followed.throttles) > told + 2)
        assert followed.throttles[-1] == THROTTLES

    with capture_logs() as logs:
        follow(cluster, script, period_s=0.01)
    (line,) = logs
    assert (line["event"], line["topic"]) == ("replication throttles of topic not read", "orders")
    assert line["reason"] == "Weir's principal may not see it: allow it DescribeConfigs on the topic"


def test_a_bad_value_is_skipped_and_logged_once_and_the_others_apply() -> None:
    cluster = throttled_cluster()
    cluster.configs[TOPIC, "payments"] = {LEADER_LIST: "x" * 100}
    cluster.configs[BROKER, "1"] = {LEADER_RATE: None}
    cluster.sources = {((BROKER, "0"), FOLLOWER_RATE): OF_ALL}

    async def script(_source: BrokerSource, followed: FollowedThrottles) -> None:
        await until(lambda: len(followed.throttles) == 3)
        assert followed.throttles[-1] == THROTTLES

    with capture_logs() as logs:
        follow(cluster, script, period_s=0.01)
    hidden, bad = logs
    assert (bad["topic"], bad["config"], bad["source"]) == ("payments", LEADER_LIST, "brokers")
    assert bad["value"] == "x" * 77 + "..."
    assert "PARTITION:BROKER" in bad["reason"]
    assert (hidden["broker"], hidden["reason"]) == (
        "1",
        "brokers hide the value: read it from ZooKeeper",
    )
