"""Replication throttles in a fake ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.proxy.following import FollowedThrottles
from weir.proxy.config.settings import ConfigError
from weir.proxy.control import zookeeper
from weir.proxy.control.replication import zookeeper_source
from weir.proxy.control.replication.follower import _checked
from weir.proxy.control.replication.zookeeper_source import ZooKeeperSource
from weir.proxy.control.zookeeper import Znode, ZooKeeperAddress, ZooKeeperError
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

if TYPE_CHECKING:
    pass

PLACE = ZooKeeperAddress("zk:2181/kafka", None, 5.0, option="replication_throttles")
LEADER_RATE, FOLLOWER_RATE = Role.LEADER.rate_key, Role.FOLLOWER.rate_key
LEADER_LIST = Role.LEADER.replicas_key


@dataclass
class Stat:
    children_count: int = 0
    cversion: int = 0


@dataclass
class FakeZooKeeper:
    """A ZooKeeper with these nodes; also the session that Weir opens."""

    nodes: dict[str, bytes | None] = field(default_factory=dict)
    changes: int = 0
    """Number of children of /config/changes that were ever created."""
    hidden: set[str] = field(default_factory=set)
    down: str = ""
    """Reason why nothing can be read; empty if all can be read."""
    reads: int = 0
    """Number of times that all nodes were read."""
    sessions: int = 0
    closed: int = 0

    def open(self, place: ZooKeeperAddress, denied: Callable[[str], None]) -> FakeZooKeeper:
        self._work()
        assert place == PLACE
        self.denied = denied
        self.sessions += 1
        return self

    def set(self, path: str, config: Mapping[str, object]) -> None:
        self.nodes[path] = json.dumps({"version": 1, "config": config}).encode()
        self.changes += 1

    def close(self) -> None:
        self.closed += 1

    def check(self) -> None:
        if not self.nodes:
            raise ZooKeeperError("zk:2181/kafka: has no /config")

    def stat(self, path: str) -> Stat | None:
        self._work()
        return Stat(cversion=self.changes if path == "/config/changes" else len(self._below(path)))

    def children(self, containers: Sequence[str]) -> Iterator[list[str]]:
        self._work()
        self.reads += containers == ["/config/brokers"]
        yield from map(self._below, containers)

    def contents(self, paths: Sequence[str]) -> Iterator[Znode]:
        for path in paths:
            if path in self.hidden:
                self.denied(path)
            else:
                yield Znode(path, self.nodes[path], Stat())

    def _below(self, path: str) -> list[str]:
        return [node for node in self.nodes if node.startswith(f"{path}/")]

    def _work(self) -> None:
        if self.down:
            raise ZooKeeperError(self.down)


Script = Callable[[ZooKeeperSource, FollowedThrottles], Awaitable[None]]


def follow(fake: FakeZooKeeper, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script beside a source, in simulated time; the source's threads are calls on Trio's thread."""

    async def call(work: Callable[..., object], *arguments: object, abandon_on_cancel: bool) -> object:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    async def main() -> None:
        source, followed = ZooKeeperSource(PLACE), FollowedThrottles()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.follow, followed.changed, followed.failed)
            await script(source, followed)
            nursery.cancel_scope.cancel()

    monkeypatch.setattr(zookeeper_source, "ZooKeeper", fake.open)
    monkeypatch.setattr(trio.to_thread, "run_sync", call)
    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert fake.closed == fake.sessions


def throttled() -> FakeZooKeeper:
    fake = FakeZooKeeper()
    fake.set("/config/brokers/1", {LEADER_RATE: "1000", "log.retention.ms": "5"})
    fake.set("/config/brokers/<default>", {FOLLOWER_RATE: "2000"})
    fake.set("/config/topics/orders", {LEADER_LIST: "0:1", "retention.ms": "7"})
    fake.set("/config/topics/payments", {})
    return fake


THROTTLES = ReplicationThrottles(
    {
        ConfigKey(ResourceType.BROKER, "1", LEADER_RATE): "1000",
        ConfigKey(ResourceType.BROKER, "", FOLLOWER_RATE): "2000",
        ConfigKey(ResourceType.TOPIC, "orders", LEADER_LIST): "0:1",
    }
)


def test_changes_in_zookeeper_are_read_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = throttled()

    async def script(_source: ZooKeeperSource, followed: FollowedThrottles) -> None:
        await trio.sleep(1)
        fake.set("/config/brokers/1", {LEADER_RATE: "5"})
        await trio.sleep(2)
        assert followed.throttles[-1].rate(Role.LEADER, 1) == 5
        await trio.sleep(20)
        assert fake.reads == 2

    follow(fake, script, monkeypatch)


def test_all_nodes_are_read_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone may write a node without telling the brokers."""
    fake = throttled()

    async def script(_source: ZooKeeperSource, followed: FollowedThrottles) -> None:
        await trio.sleep(1)
        fake.nodes["/config/topics/orders"] = b'{"version": 1, "config": {}}'
        await trio.sleep(61)
        assert followed.throttles[-1].topics == frozenset()
        assert fake.sessions == 1

    follow(fake, script, monkeypatch)


def test_a_lost_zookeeper_is_reported_and_read_again_with_a_new_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = throttled()

    async def script(_source: ZooKeeperSource, followed: FollowedThrottles) -> None:
        await trio.sleep(1)
        fake.down = "zk:2181/kafka: SessionExpiredError while reading; try again"
        await trio.sleep(6)
        assert followed.failures == [fake.down] * 3
        assert (followed.throttles, fake.closed) == ([THROTTLES], 1)
        fake.down = ""
        await trio.sleep(2)
        assert followed.throttles == [THROTTLES, THROTTLES]
        assert fake.sessions == 2

    follow(fake, script, monkeypatch)


def test_a_wrong_chroot_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(_source: ZooKeeperSource, followed: FollowedThrottles) -> None:
        await trio.sleep(0.1)
        assert followed.failures == ["zk:2181/kafka: has no /config"]

    follow(FakeZooKeeper(), script, monkeypatch)


@pytest.mark.parametrize(
    "content",
    [b"{", b"\xff", b"[]", b'{"config": {"leader.replication.throttled.rate": []}}', b"[" * 100_000, None],
)
def test_a_node_that_cannot_be_read_is_skipped_and_logged_once(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = throttled()
    if content is None:  # Weir may not read a node
        fake.hidden = {"/config/topics/payments"}
    else:
        fake.nodes["/config/brokers/2"] = content

    async def script(_source: ZooKeeperSource, followed: FollowedThrottles) -> None:
        await trio.sleep(130)
        assert fake.reads == 3
        assert followed.throttles == [THROTTLES] * 3

    with capture_logs() as logs:
        follow(fake, script, monkeypatch)
    (line,) = logs
    assert line["log_level"] == "warning"
    node, reason = "/config/brokers/2", "ZooKeeper does not let Weir read it"
    assert line["node"] == node if content is not None else line["reason"] == reason


def test_a_missing_kazoo_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"replication_throttles needs kazoo \(the extra `zookeeper`\)"):
        _checked("zk:2181", 5.0)
