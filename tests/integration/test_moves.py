"""Leaders, coordinators, controllers and brokers that move while clients talk through one Weir."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tests.integration.aftermath import Aftermath
from tests.integration.conftest import StartWeir
from tests.integration.reassigning import reassign
from tests.integration.traffic import (
    AT_LEAST_ONCE,
    ONCE,
    RdReceiver,
    RdSender,
    Receiver,
    Sender,
    assert_all_arrived,
    create_spread,
    delete_topic,
    flow,
    leaders,
    settle,
    until,
    wait_in_sync,
)
from tests.integration.weir import Weir
from tests.integration.weir_log import GENEROUS, entries
from tests.kafka import Cluster, wire
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.settings import HOST

pytestmark = [pytest.mark.broker]

NODES = (0, 1, 2)
EVERYWHERE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
"""The replicas of three partitions, each led by another broker."""
OLD, MIDDLE, NEW = "0.10.2.2", "3.9.1", "4.4.0"
CLASSIC, KIP_848 = (
    {"heartbeat.interval.ms": 500, "session.timeout.ms": 20_000},
    {"group.protocol": "consumer"},
)


class Crowd:
    """Two producers, a group of two, and a consumer without a group, on a topic that is at every broker."""

    def __init__(self, weir: Weir, topic: str, *, once: bool, member: Mapping[str, Any]) -> None:
        create_spread(weir.bootstrap, topic, EVERYWHERE, min_in_sync=2)
        self.group = topic
        self._once = once
        place, promise = (weir.bootstrap, topic, len(EVERYWHERE)), ONCE if once else AT_LEAST_ONCE
        self._senders: list[Sender] = [RdSender(*place, promise, name=name) for name in ("one", "two")]
        self._alone: list[Receiver] = [RdReceiver(*place, name="alone")]
        self._members: list[Receiver] = [
            RdReceiver(*place, group=self.group, options=member, name=f"member {name}") for name in "ab"
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for talker in (*self._senders, *self._alone, *self._members):
            self._stack.enter_context(talker)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]  # what it was given

    def flow(self) -> None:
        """Producers produce, and both the group and the lone consumer get it."""
        flow(self._senders, self._alone, self._members)

    def settle(self) -> None:
        settle(self._senders, self._alone, self._members)

    def assert_all_arrived(self) -> None:
        assert_all_arrived(self._senders, self._alone, once=self._once)
        assert_all_arrived(self._senders, self._members, once=self._once, again=True)


@pytest.mark.parametrize("version", [MIDDLE])
def test_clients_lose_nothing_while_brokers_restart_one_by_one(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version, brokers=3)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    aftermath = Aftermath(weir, NODES)
    with Crowd(weir, topic, once=True, member=CLASSIC) as crowd:
        crowd.flow()
        for node_id in NODES:
            cluster.restart(node_id)
            wait_in_sync(weir.bootstrap, topic)
            crowd.flow()
        aftermath.assert_all_through_weir(cluster.ports.values())
        crowd.settle()
    crowd.assert_all_arrived()
    aftermath.check()


@pytest.mark.parametrize(
    ("version", "member"),
    [(OLD, CLASSIC), (MIDDLE, CLASSIC), (NEW, KIP_848)],
)
def test_clients_survive_killed_group_coordinators_and_controllers(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str, member: Mapping[str, Any]
) -> None:
    cluster = kafka_cluster(version, brokers=3)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    aftermath = Aftermath(weir, NODES)
    with Crowd(weir, topic, once=version != OLD, member=member) as crowd:
        crowd.flow()
        victims: list[Callable[[], int]] = [lambda: cluster.coordinator(crowd.group), cluster.controller]
        for victim in victims:
            wait_in_sync(weir.bootstrap, topic)
            wait_in_sync(weir.bootstrap, "__consumer_offsets")
            was = victim()
            cluster.kill(was)
            assert victim() != was
            crowd.flow()
            cluster.restart(was)
            crowd.flow()
        crowd.settle()
    crowd.assert_all_arrived()
    aftermath.check()


@pytest.mark.parametrize("version", core_at([OLD, NEW], core=(NEW,)))
def test_clients_follow_a_partition_to_another_broker(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster(version, brokers=3)
    weir = start_weir(cluster.bootstrap, GENEROUS)
    aftermath = Aftermath(weir, NODES)
    create_spread(weir.bootstrap, topic, [[0]])
    place = weir.bootstrap, topic, 1
    sender, receiver = RdSender(*place, AT_LEAST_ONCE if version == OLD else ONCE), RdReceiver(*place)
    with sender, receiver:
        flow([sender], [receiver])
        assert leaders(weir.bootstrap, topic) == [0]
        reassign(cluster, weir, [topic], to=2, plan=tmp_path / "plan.json")
        until(lambda: leaders(weir.bootstrap, topic) == [2], lambda: f"{topic} to be led by broker 2")
        flow([sender], [receiver])
        aftermath.assert_all_through_weir(cluster.ports.values())
        settle([sender], [receiver])
    assert_all_arrived([sender], [receiver], once=version != OLD)
    aftermath.check()
    assert {0, 2} <= {
        entry["node_id"] for entry in entries(weir.log) if entry["event"] == "connection closed"
    }


@pytest.mark.parametrize("version", [MIDDLE])
def test_clients_follow_an_added_and_a_removed_broker(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version, brokers=3)
    taught = start_weir(cluster.bootstrap, GENEROUS, options=("--set", "refresh_s=3600"))
    asking = start_weir(cluster.bootstrap, options=("--set", "refresh_s=1"))
    aftermaths = [Aftermath(weir, NODES) for weir in (taught, asking)]
    create_spread(taught.bootstrap, topic, [[0]])
    stays = RdSender(taught.bootstrap, topic, 1, ONCE), RdReceiver(taught.bootstrap, topic, 1)
    with stays[0], stays[1]:
        added = cluster.add()
        follow_addresses(taught, expected={*NODES, added})
        for aftermath in aftermaths:  # clients of one were told; the other asked, with no client at all
            aftermath.came(added)
        use_broker(taught, cluster, f"{topic}-added", added, aftermaths[0])
        cluster.remove(added)
        assert set(told_by(taught)) == set(NODES)
        flow([stays[0]], [stays[1]])
        said = about(taught, added)
        assert {entry["event"] for entry in said} >= {"broker found", "connection closed"}
        for _ in range(20):
            flow([stays[0]], [stays[1]])
        assert about(taught, added) == said, "nobody needs the removed broker, yet Weir goes on about it"
        settle([stays[0]], [stays[1]])
    assert_all_arrived([stays[0]], [stays[1]], once=True)
    # The removed broker's listener stays open: the id may come back, and clients' old metadata name its port.
    for aftermath in aftermaths:
        aftermath.check()


def follow_addresses(weir: Weir, expected: set[int]) -> None:
    """Connect to each broker that Weir names, at once: its listener must not be later than its name."""
    seen: set[int] = set()

    def all_seen() -> bool:
        for node_id, address in told_by(weir).items():
            assert node_id in wire.known_brokers(*address)
            seen.add(node_id)
        return seen >= expected

    until(all_seen, lambda: f"Weir to name {expected}, so far {seen}")


def use_broker(weir: Weir, cluster: Cluster, topic: str, node_id: int, aftermath: Aftermath) -> None:
    """Produce to and consume from a topic that is at this broker alone; delete it again."""
    create_spread(weir.bootstrap, topic, [[node_id]])
    place = weir.bootstrap, topic, 1
    sender, receiver = RdSender(*place, ONCE), RdReceiver(*place)
    with sender, receiver:
        flow([sender], [receiver])
        aftermath.assert_all_through_weir(cluster.ports.values())
        settle([sender], [receiver])
    assert_all_arrived([sender], [receiver], once=True)
    delete_topic(weir.bootstrap, topic)


def told_by(weir: Weir) -> dict[int, tuple[str, int]]:
    return wire.metadata(HOST, weir.port)[0]


def about(weir: Weir, node_id: int) -> list[dict[str, object]]:
    return [entry for entry in entries(weir.log) if entry.get("node_id") == node_id]
