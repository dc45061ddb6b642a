"""The supervisor's counting of topics: reading them from brokers, and answering workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from tests.kfake.cluster import HOST, Cluster
from tests.kfake.in_trio import serve
from tests.proxy.following import until
from tests.proxy.worker_rigs import NUMBERED_FROM, connect, new_pool, running_worker
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataResponse
from weir.proxy.config import config
from weir.proxy.control import topic_counts
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.topic_counts import TopicCounter
from weir.proxy.server.server import Server
from weir.proxy.workers.messages import CountTopics, TopicsChanged, TopicsCounted
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.topic_counts import TopicGrowth

LIMIT = QuotaTable({(Entity(topic_prefix="pay."), QuotaKey.TOPICS_MAX): 2})
NEW = TopicGrowth("pay.new", 0, 1)


@asynccontextmanager
async def counting(cluster: Cluster) -> AsyncIterator[TopicCounter]:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, cluster, 0)
            brokers = list(cluster.nodes.values())
            counter = TopicCounter(lambda: brokers, DIRECT, 5.0, lambda: 1000.0, lambda: 0)
            counter.use(LIMIT)
            nursery.start_soon(counter.follow, lambda: None)
            yield counter
            nursery.cancel_scope.cancel()


async def reserve(counter: TopicCounter, *wanted: TopicGrowth) -> list[bool]:
    """True for each topic that is refused."""
    answered, found = trio.Event(), list[str]()

    def done(reasons: list[str]) -> None:
        found.extend(reasons)
        answered.set()

    counter.reserve(wanted, False, done)
    await answered.wait()
    return list(map(bool, found))


@pytest.mark.trio
async def test_topics_created_past_this_weir_count_at_the_next_creation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_counts, "SHARE", 0)
    cluster = Cluster()
    cluster.add("pay.a")
    async with counting(cluster) as counter:
        assert await reserve(counter, NEW) == [False]
        counter.settle({NEW.name: None}, 0)
        cluster.add("pay.b")
        assert await reserve(counter, NEW, TopicGrowth("pay.a", 1, 5)) == [True, False]
        (condition,) = counter.conditions()
        assert condition.what == "topics_max of topic prefix pay. is reached: 2 of 2."


@pytest.mark.trio
async def test_creations_soon_after_a_reading_cause_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_counts, "SHARE", 10**6)
    cluster = Cluster()
    async with counting(cluster) as counter:
        for _creation in range(5):
            await reserve(counter, NEW)
        assert [api_key for api_key, _version in cluster.questions].count(3) == 1


@pytest.mark.trio
async def test_a_broker_that_does_not_know_the_cluster_yet_tells_no_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_counts, "SHARE", 0)
    cluster = Cluster()
    cluster.add("pay.a")
    cluster.add("pay.b")
    async with counting(cluster) as counter:
        assert await reserve(counter, NEW) == [True]
        cluster.handlers[ApiKey.METADATA] = MetadataResponse()
        assert await reserve(counter, NEW) == [True]
        (condition, _full) = counter.conditions()
        assert "it knows no broker of the cluster yet. The last known ones count" in condition.what


@pytest.mark.trio
async def test_nothing_is_refused_while_no_broker_tells_its_topics() -> None:
    cluster = Cluster(shy=True)
    async with counting(cluster) as counter:
        three = [TopicGrowth(f"pay.{number}", 0, 1) for number in range(3)]
        assert await reserve(counter, *three) == [False, False, False]
        (condition,) = counter.conditions()
        assert condition.what.startswith("Topics are not counted: ")
        assert "Nothing is refused" in condition.what


@pytest.mark.trio
async def test_a_worker_asks_the_supervisor_with_numbers_of_its_own() -> None:
    async with running_worker(LIMIT) as rig:
        counted, answers = rig.worker.plane.plans.cluster.counted_topics, list[list[str]]()
        assert counted.prefixes == ("pay.",)
        counted.reserve_at([NEW], True, answers.append)
        (asked,) = await rig.hear(CountTopics)
        assert (asked.wanted, asked.validate_only) == ([NEW], True)
        assert asked.number >= NUMBERED_FROM
        counted.settle({"pay.a": 0}, 7, 5)
        assert await rig.hear(TopicsChanged) == [TopicsChanged({"pay.a": 0}, 7, 5)]
        for number in (asked.number - 1, asked.number):
            rig.link.post(TopicsCounted(number, ["full"]))
        await until(lambda: bool(answers))
        assert answers == [["full"]]


@pytest.mark.trio
async def test_a_bug_in_a_connection_that_asked_about_topics_does_not_end_its_worker() -> None:
    async with running_worker(LIMIT) as rig:
        counted, answers = rig.worker.plane.plans.cluster.counted_topics, list[list[str]]()
        counted.reserve_at([NEW], True, lambda _reasons: [].pop())
        counted.reserve_at([NEW], True, answers.append)
        with capture_logs() as logged:
            for asked in await rig.hear(CountTopics, 2):
                rig.link.post(TopicsCounted(asked.number, ["full"]))
            await until(lambda: bool(answers))
    assert [line["event"] for line in logged] == ["internal error while a quota request was answered"]


@pytest.mark.trio
async def test_the_supervisor_answers_the_worker_that_asked() -> None:
    given = config.load(None, {"upstream": f"{HOST}:1"})
    server = Server(given, QuotaRegistry(LIMIT))
    server.topic_counter._fresh_until_s = trio.current_time() + 100
    server.topic_counter.counts.read({"pay.a": 1}, 0)
    pool = new_pool(server)
    one, other = connect(pool)
    await pool._take(1, CountTopics(5, [NEW, TopicGrowth("pay.c", 0, 1)], False))
    message, _socks = await other.link.receive()
    assert isinstance(message, TopicsCounted)
    assert (message.number, list(map(bool, message.reasons))) == (5, [False, True])
    await pool._take(0, TopicsChanged({"pay.a": 0}))
    assert [reading.number for reading in server.topic_counter.counts.readings()] == [1]
    for link in (one.link, other.link, *(handle._link for handle in pool.handles)):
        assert link is not None
        link.close()
