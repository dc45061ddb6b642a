"""The supervisor's reading of brokers' storage, and the rates that it puts in force."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from tests.kfake.cluster import HOST, Answer, Cluster
from tests.kfake.in_trio import serve
from tests.proxy.following import LONG_S, until
from tests.proxy.worker_rigs import connect, disconnect, new_pool
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from weir.protocol.versions import VersionRange
from weir.proxy.config import config
from weir.proxy.control.cluster.access import DIRECT
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.storage import StorageReader
from weir.proxy.server.server import Server
from weir.proxy.workers.messages import QuotasChanged
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.storage import STALE_MS, BrokerStorage, StorageBudgets

PAY = Entity(topic_prefix="pay.")
ALL = Entity(group="<all>")
TABLE = QuotaTable({(PAY, QuotaKey.STORED_BYTES_MAX): 1000, (PAY, QuotaKey.OVER_BYTE_RATE): 64})
RATE = Entity(topic="pay.a"), QuotaKey.PRODUCER_BYTE_RATE
OVER = "stored_bytes_max of topic prefix pay. is exceeded: 2.4 kB of 1 kB, so producers get 64 B/s."


class Disks(Cluster):
    """Brokers with two log directories each, and a third that fails."""

    def __init__(self) -> None:
        super().__init__(handlers={ApiKey.DESCRIBE_LOG_DIRS: self.log_dirs})
        self.replicas = [100, 500]
        self.may_describe = True

    def log_dirs(self, request: DescribeLogDirsRequest, version: int, _now_ms: int) -> Answer:
        assert request.topics is None
        if not self.may_describe:  # as KafkaApis.handleDescribeLogDirsRequest
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if version >= 3 else ErrorCode.NONE
            return DescribeLogDirsResponse(error_code=code, results=[])
        told = DescribeLogDirsResponse
        partitions = [
            told.DescribeLogDirsPartition(partition_index=index, partition_size=size)
            for index, size in enumerate(self.replicas)
        ]
        topics = [told.DescribeLogDirsTopic(name=name, partitions=partitions) for name in ("pay.a", "other")]
        directories = [
            told.DescribeLogDirsResult(log_dir=f"/{usable}", topics=topics, usable_bytes=usable)
            for usable in (7000, 6000)
        ]
        failed = told.DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/0")
        return told(results=[*directories, failed])


class Watched:
    def __init__(self, cluster: Disks, table: QuotaTable) -> None:
        self.now_ms, self.cluster = 0, cluster
        self.scopes: list[trio.CancelScope] = []
        self.reader = StorageReader(lambda: cluster.nodes, DIRECT, 5.0, lambda: 0.001, lambda: self.now_ms)
        self.reader.use(table)

    def problems(self) -> list[str]:
        return [condition.what for condition in self.reader.conditions()]

    def numbers(self) -> list[int | None]:
        return [reading.number for reading in self.reader.budgets.readings()]


@asynccontextmanager
async def watching(cluster: Disks, table: QuotaTable = TABLE) -> AsyncIterator[Watched]:
    with trio.fail_after(LONG_S):
        async with trio.open_nursery() as nursery:
            watched = Watched(cluster, table)
            for node_id in (0, 1):
                watched.scopes.append(await nursery.start(serve, cluster, node_id))
            nursery.start_soon(watched.reader.follow, lambda: None)
            yield watched
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_budget_is_over_by_the_replicas_of_all_brokers_and_the_log_has_begin_and_end() -> None:
    cluster = Disks()
    with capture_logs() as logged:
        async with watching(cluster) as watched:
            await until(lambda: watched.problems() == [OVER])
            assert watched.numbers() == [2400]
            assert watched.reader.budgets.applied(TABLE).get(RATE) is not None
            cluster.replicas = [0]
            await until(lambda: not watched.problems())
            assert watched.reader.budgets.applied(TABLE) is TABLE
    assert [(line["event"], line["bytes"]) for line in logged] == [
        ("storage budget over", 2400),
        ("storage budget kept again", 0),
    ]


@pytest.mark.trio
@pytest.mark.parametrize("newest", range(6))
async def test_each_version_tells_storage_and_refusals_and_new_ones_the_fullest_volume(newest: int) -> None:
    table = QuotaTable({(PAY, QuotaKey.STORED_BYTES_MAX): 9000, (ALL, QuotaKey.USABLE_BYTES_MIN): 5000})
    cluster = Disks()
    cluster.spoken[ApiKey.DESCRIBE_LOG_DIRS] = VersionRange(0 if newest < 2 else 1, newest)
    async with watching(cluster, table) as watched:
        await until(lambda: watched.numbers() == [2400, 6000 if newest >= 4 else None])
        unknown = ["usable_bytes_min of group <all> has no effect: no broker tells the usable bytes of its"]
        assert [what[: len(unknown[0])] for what in watched.problems()] == ([] if newest >= 4 else unknown)
        cluster.may_describe = False
        await until(lambda: any("Weir may not describe the cluster" in what for what in watched.problems()))
        assert watched.numbers()[0] == 2400
    assert set(cluster.asked_of(DescribeLogDirsRequest)) == {newest}


@pytest.mark.trio
async def test_a_broker_without_the_api_is_told() -> None:
    cluster = Disks()
    del cluster.spoken[ApiKey.DESCRIBE_LOG_DIRS]
    async with watching(cluster) as watched:
        await until(lambda: any("it has no DescribeLogDirs" in what for what in watched.problems()))
        assert watched.numbers() == [None]


@pytest.mark.trio
async def test_what_a_broker_told_counts_for_five_minutes_after_it_went_away() -> None:
    cluster = Disks()
    async with watching(cluster) as watched:
        await until(lambda: watched.problems() == [OVER])
        watched.scopes[0].cancel()
        await until(lambda: len(watched.problems()) == 2)
        cluster.replicas = [300]
        watched.now_ms = STALE_MS - 1
        await until(lambda: watched.numbers() == [1800])
        unread, over = watched.problems()
        assert unread.startswith("Storage is not read: broker 0: ")
        assert over.startswith("stored_bytes_max of topic prefix pay. is exceeded: 1.8 kB of 1 kB")
        watched.now_ms = STALE_MS
        await until(lambda: watched.numbers() == [600])
        assert watched.problems() == [unread]
        assert watched.reader.budgets.applied(TABLE) is TABLE


@pytest.mark.trio
async def test_a_broker_that_has_left_the_cluster_is_not_asked_and_no_problem_of_storage() -> None:
    cluster = Disks()
    with trio.fail_after(LONG_S):
        async with trio.open_nursery() as nursery:
            _stays, leaves = [await nursery.start(serve, cluster, node_id) for node_id in (0, 1)]
            settings = {"upstream": str(cluster.nodes[0]), "refresh_s": 0.001}
            server = Server(config.load(None, settings), QuotaRegistry(TABLE))
            await server._discovery.refresh()
            reader = server.storage_reader
            nursery.start_soon(reader.follow, lambda: None)
            await until(lambda: [each.what for each in reader.conditions()] == [OVER])
            leaves.cancel()
            await until(lambda: any("broker 1: " in each.what for each in reader.conditions()))
            del cluster.nodes[1]
            await server._discovery.refresh()
            await until(lambda: [each.what for each in reader.conditions()] == [OVER])
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_the_rates_of_a_budget_reach_workers_and_limiters_but_not_the_configured_table() -> None:
    server = Server(config.load(None, {"upstream": f"{HOST}:1"}), QuotaRegistry(TABLE))
    pool = new_pool(server)
    one, other = connect(pool)
    budgets, registry = server.storage_reader.budgets, server.quotas
    registry.of(1)
    for size, expected in ((1001, 64), (0, None)):
        budgets.read(1, BrokerStorage({"pay.a": size}, None), 0)
        assert budgets.judge(0)
        await pool._manager.renew()
        message, _socks = await other.link.receive()
        assert isinstance(message, QuotasChanged)
        delta = pickle.loads(message.pickled)  # noqa: S301  # ours
        assert (delta.enforced[RATE] and delta.enforced[RATE].value) == expected
        rates = registry.of(1).topics
        limits = [] if rates is None else [budget.limit for budget in rates.produce.budgets()]
        assert limits == [each for each in (expected,) if each]
        assert registry.table is pool._manager.table is TABLE
    disconnect(pool, [one, other])


def test_a_floor_holds_against_the_budget_of_a_group() -> None:
    floor = Entity("canary"), QuotaKey.PRODUCER_BYTE_FLOOR
    table = QuotaTable({(ALL, QuotaKey.USABLE_BYTES_MIN): 100, (ALL, QuotaKey.OVER_BYTE_RATE): 64, floor: 9})
    registry, budgets = QuotaRegistry(table), StorageBudgets()
    registry.derive = budgets.applied
    budgets.use(table)
    budgets.read(1, BrokerStorage({}, 99), 0)
    assert budgets.judge(0)
    registry.use(table)
    assert registry.of(1).ledger("alice", "", 0).charge_produce(6400, 0) > 0
    assert registry.of(1).ledger("canary", "", 0).charge_produce(80, 0) == 0
