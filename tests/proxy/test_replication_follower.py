"""The follower of replication throttles: throttles come into force with the ids of their topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.proxy.supervised import supervisor
from weir.proxy.addresses import Address, AddressBook
from weir.proxy.config import config
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.replication import follower as follower_module
from weir.proxy.control.replication.cluster_connection import ClusterConnection
from weir.proxy.control.replication.follower import ReplicationFollower, replication_follower
from weir.proxy.control.replication.sources import Changed, SourceError, ThrottleSource
from weir.proxy.control.replication.table_source import TableSource
from weir.proxy.control.replication.topic_ids import IDS_S, TopicIds
from weir.proxy.control.supervisor import Task
from weir.proxy.handlers.replication.replication import Replication
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

REFRESH_S = 30.0
OLD_ID, NEW_ID = b"a" * 16, b"b" * 16
RATE = ConfigKey(ResourceType.BROKER, "1", Role.LEADER.rate_key)


def listing(*topics: str, rate: str = "1000") -> ReplicationThrottles:
    lists = {ConfigKey(ResourceType.TOPIC, topic, Role.LEADER.replicas_key): "*" for topic in topics}
    return ReplicationThrottles({RATE: rate, **lists})


class Cluster:
    def __init__(self) -> None:
        self.ids = {"orders": OLD_ID}
        self.missing = ""
        self.fails = self.is_silent = False
        self.asked: list[tuple[float, list[str]]] = []
        """(Time (s) since the start, topics)."""
        self.in_force: list[ReplicationThrottles] = []
        """Throttles in force at each question."""

    def answer(self, replication: Replication) -> Callable[..., Awaitable[TopicIds]]:
        began_s = trio.current_time()

        async def ask(_cluster: ClusterConnection, topics: Collection[str]) -> TopicIds:
            self.asked.append((trio.current_time() - began_s, sorted(topics)))
            self.in_force.append(replication.quotas.throttles)
            if self.is_silent:
                await trio.sleep(IDS_S)
            if self.fails or self.is_silent:
                raise QuestionError("broker is down", reachable=False, foreign=False)
            return TopicIds({self.ids[topic]: topic for topic in topics if topic in self.ids}, self.missing)

        return ask


class ScriptedSource:
    name = "script"

    def __init__(self) -> None:
        self.changed: Changed | None = None
        self.failed: Callable[[SourceError], None] | None = None
        self.alterations = 0

    def altered(self) -> None:
        self.alterations += 1

    async def follow(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        self.changed, self.failed = changed, failed
        await trio.sleep_forever()

    async def tell(self, throttles: ReplicationThrottles) -> None:
        assert self.changed is not None
        await self.changed(throttles)

    def fail(self, reason: str) -> None:
        assert self.failed is not None
        self.failed(SourceError(reason))


class Story:
    def __init__(self, source: ThrottleSource) -> None:
        self.source = source
        self.cluster = Cluster()
        self.replication = Replication()
        self.works = 0
        connection = ClusterConnection(lambda: [Address("127.0.0.1", 1)], DIRECT, 5.0)
        self.follower = ReplicationFollower(source, self.replication, connection, REFRESH_S)

    def note_works(self) -> None:
        self.works += 1

    def unknown_topic(self) -> None:
        assert self.replication.on_unknown_topic is not None
        self.replication.on_unknown_topic()


def play(source: ThrottleSource, script: Callable[[Story], Awaitable[None]]) -> None:
    async def main() -> None:
        story = Story(source)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follower_module, "ask_topic_ids", story.cluster.answer(story.replication))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(story.follower.follow, story.note_works)
                await wait_all_tasks_blocked()
                await script(story)
                nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_topic_ids_are_asked_before_new_throttles_are_in_force() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        await source.tell(listing("orders"))
        assert story.cluster.in_force == [ReplicationThrottles()]
        assert story.replication.topic_names == {OLD_ID: "orders"}
        assert story.replication.quotas.throttles == listing("orders")

    play(source, script)


def test_throttles_are_in_force_while_the_cluster_does_not_tell_ids_and_ids_are_asked_every_second() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        story.cluster.fails = True
        with capture_logs() as logs:
            await source.tell(listing("orders"))
            assert story.replication.quotas.throttles == listing("orders")
            await trio.sleep(2.5)
            assert [at_s for at_s, _topics in story.cluster.asked] == pytest.approx([0.0, 1.0, 2.0])
            story.cluster.fails = False
            await trio.sleep(1.0)
        assert story.replication.topic_names == {OLD_ID: "orders"}
        events = [(line["log_level"], line["event"]) for line in logs if "ids of" in line["event"]]
        assert events == [
            ("error", "ids of throttled topics not known, their replicas are not throttled"),
            ("info", "ids of throttled topics known again"),
        ]

    play(source, script)


def test_a_question_for_ids_without_answer_delays_throttles_by_ten_seconds() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        story.cluster.is_silent = True
        began_s = trio.current_time()
        await source.tell(listing("orders"))
        assert trio.current_time() - began_s == pytest.approx(10.0)
        assert story.replication.quotas.throttles == listing("orders")
        story.cluster.is_silent = False
        await trio.sleep(1.1)
        assert story.replication.topic_names == {OLD_ID: "orders"}

    play(source, script)


def test_ids_of_a_topic_that_was_created_again_are_asked_after_an_unknown_topic_at_most_once_a_second() -> (
    None
):
    source = ScriptedSource()

    async def script(story: Story) -> None:
        await source.tell(listing("orders"))
        await trio.sleep(5)
        story.cluster.ids = {"orders": NEW_ID}
        for _fetch in range(100):
            story.unknown_topic()
        await trio.sleep(0.1)
        assert story.replication.topic_names == {NEW_ID: "orders"}
        for _fetch in range(29):
            story.unknown_topic()
            await trio.sleep(0.1)
        asked_s = [at_s for at_s, _topics in story.cluster.asked]
        assert asked_s == pytest.approx([0.0, 5.0, 6.0, 7.0])

    play(source, script)


def test_ids_are_asked_again_every_refresh_period() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        await source.tell(listing("orders"))
        story.cluster.ids = {"orders": NEW_ID}
        await trio.sleep(REFRESH_S + 1)
        assert story.replication.topic_names == {NEW_ID: "orders"}
        assert len(story.cluster.asked) == 2

    play(source, script)


def test_ids_of_topics_without_throttles_are_forgotten() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        await source.tell(listing("orders"))
        await source.tell(ReplicationThrottles())
        await trio.sleep(REFRESH_S + 1)
        assert story.replication.topic_names == {}

    play(source, script)


def test_the_last_known_throttles_stay_in_force_while_a_source_fails() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        with capture_logs() as logs:
            await source.tell(listing("orders"))
            source.fail("gone")
            source.fail("gone")
            assert story.replication.quotas.throttles == listing("orders")
            await source.tell(listing("orders"))
        lines = [(line["event"], line.get("reason")) for line in logs]
        assert lines == [
            ("replication throttles loaded", None),
            ("replication throttles not read, the last known stay in force", "gone"),
            ("replication throttles read again", None),
        ]
        assert story.works == 2

    play(source, script)


def test_a_follower_that_has_failed_is_started_again_with_the_throttles_in_force() -> None:
    registry = QuotaRegistry(QuotaTable(replication=listing("orders")))

    async def main() -> None:
        story = Story(TableSource(registry))
        answer = story.cluster.answer(story.replication)
        failures = [ZeroDivisionError()]

        async def failing(cluster: ClusterConnection, topics: Collection[str]) -> TopicIds:
            if failures:
                raise failures.pop()
            return await answer(cluster, topics)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follower_module, "ask_topic_ids", failing)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(supervisor().keep_running, Task.REPLICATION, story.follower.follow)
                await trio.sleep(1.5)
                nursery.cancel_scope.cancel()
        assert story.replication.quotas.throttles == listing("orders")
        assert story.replication.topic_names == {OLD_ID: "orders"}

    with capture_logs() as logs:
        trio.run(main, clock=MockClock(autojump_threshold=0))
    tasks = [line["event"] for line in logs if "task" in line]
    assert tasks == ["task failed, restarting it; please report this", "task works again"]


def test_an_alteration_at_a_broker_has_the_source_read_again() -> None:
    source = ScriptedSource()

    async def script(story: Story) -> None:
        story.follower.altered_at_broker()
        await trio.sleep(0.1)
        assert source.alterations == 1

    play(source, script)


def test_throttles_of_the_quota_table_are_in_force_from_the_start_and_after_each_update() -> None:
    key = ConfigKey(ResourceType.TOPIC, "orders", Role.LEADER.replicas_key)
    registry = QuotaRegistry(QuotaTable(replication=listing("orders")))

    async def script(story: Story) -> None:
        assert story.replication.quotas.throttles == listing("orders")
        registry.use(registry.table.replication_altered({key: None}))
        await trio.sleep(0.1)
        assert story.replication.quotas.throttles == listing()

    play(TableSource(registry), script)


@pytest.mark.parametrize(
    ("kept_by", "name"),
    [
        ("weir", "quota table"),
        ("brokers", "brokers"),
        ("zk:2181/kafka", "zookeeper"),
    ],
)
def test_settings_choose_the_source_of_throttles(kept_by: str, name: str) -> None:
    settings = config.load(
        None,
        {
            "upstream": "kafka:9092",
            "replication_upstream": "1@kafka:9093",
            "replication_listen": "127.0.0.1:29092",
            "replication_throttles": kept_by,
        },
    )
    book = AddressBook(settings.advertised_listeners, lambda _node_id, _port: None)
    registry = QuotaRegistry(QuotaTable())
    follower = replication_follower(settings, registry, Replication(), book)
    assert follower.source_name == name
