"""Storage of the cluster's brokers, for storage budgets (`quotas.storage`): asks each broker what its log
directories hold (DescribeLogDirs, KIP-113; with volumes, KIP-827), while there are such budgets.

A broker that does not answer counts with what it has told last, for `STALE_MS`. All failures are told as a
problem: an unknown storage throttles nobody.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

import structlog
import trio

from weir.protocol.api import ApiKey, versions
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from weir.protocol.versions import NONE
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.events.health import Condition, problem
from weir.proxy.control.replication.cluster_connection import REASONS_MAX, ClusterConnection, QueriedBroker
from weir.proxy.control.snapshots.sentences import size_text
from weir.proxy.control.supervisor import Works
from weir.proxy.outage import Outage
from weir.quotas import QuotaTable
from weir.quotas.storage import STALE_MS, BrokerStorage, StorageBudgets, StorageReading
from weir.quotas.table.quota_kind import KINDS

log = structlog.get_logger("weir")

READ_S: Final = 20.0
"""Maximum time (s) of one broker's answer."""
_NO_RIGHT: Final = "Weir may not describe the cluster"
_UNREAD: Final = (
    "Start the brokers, or give Weir a login (upstream_sasl_*) with DESCRIBE on the cluster. "
    "Brokers from 1.0 on tell their storage."
)
_OVER: Final = "Delete records or topics, shorten their retention, or change the mark: weir quotas set."


class StorageReader:
    """Reads the storage of a cluster's brokers while there are storage budgets."""

    def __init__(
        self,
        brokers: Callable[[], Mapping[int, Address]],
        access: Access,
        timeout_s: float,
        refresh_s: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        """Begin without budgets. `brokers` returns the addresses of the cluster's present brokers by node id;
        each response may take `timeout_s`. Brokers are asked every `refresh_s`, and before their data are too
        old to count. `now_ms` is the clock of budgets.
        """
        self.budgets = StorageBudgets()
        self.on_change: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        """Coroutine function to call when the rates of budgets have changed."""
        self._brokers = brokers
        self._connect = partial(ClusterConnection, access=access, timeout_s=timeout_s)
        self._connections: dict[int, ClusterConnection] = {}
        self._refresh_s = refresh_s
        self._now_ms = now_ms
        self._failures: dict[int, str] = {}
        """Node id → the reason why its latest reading has failed."""
        self._wanted = trio.Event()
        self._outage = Outage(log, "storage not read", "storage is read again")

    def use(self, table: QuotaTable) -> None:
        """Use the budgets of the table in force from now on."""
        if self.budgets.use(table):
            self._wanted.set()

    async def follow(self, works: Works) -> None:
        """Read storage while there are budgets, until cancelled: work for `Supervisor.keep_running`."""
        try:
            while True:
                self._wanted = trio.Event()
                if self.budgets.is_used:
                    await self._read()
                before = {each.mark: each for each in self.budgets.readings()}
                if self.budgets.judge(self._now_ms()):
                    for each in self.budgets.readings():
                        if each.is_over != before[each.mark].is_over:
                            _write(each)
                    await self.on_change()
                works()
                with trio.move_on_after(min(self._refresh_s(), STALE_MS / 2000)):
                    await self._wanted.wait()
        finally:
            with trio.CancelScope(shield=True):  # cancelled, the first `aclose` would be the last
                for connection in self._connections.values():
                    await connection.aclose()

    def conditions(self) -> Iterator[Condition]:
        """Yield the problems: storage is not read, a budget is over, or its storage is unknown."""
        if not self.budgets.is_used:
            return
        if self._outage.failing:
            what = f"Storage is not read: {self._outage.reason}. What was read in the last 5 minutes counts."
            yield problem("storage_not_read", what, _UNREAD)
        is_known = self.budgets.is_known(self._now_ms())
        for each in self.budgets.readings():
            if each.is_over and not each.is_shadow:
                rate = "" if each.over_rate is None else f", so producers get {size_text(each.over_rate)}/s"
                yield problem(f"storage_over {each.mark}", f"{_compared(each)}{rate}.", _OVER)
            elif each.number is None and KINDS[each.mark.key].is_minimum and is_known:
                what = f"{each.mark} has no effect: no broker tells the usable bytes of its volumes."
                yield problem(f"storage_unknown {each.mark}", what, "Use stored_bytes_max before Kafka 3.3.")

    async def _read(self) -> None:
        self._failures.clear()
        brokers = self._brokers()
        for node_id in self._connections.keys() - brokers.keys():
            await self._connections.pop(node_id).aclose()
        async with trio.open_nursery() as nursery:
            for node_id in brokers:
                nursery.start_soon(self._read_broker, node_id)
        if self._failures:
            reasons = [self._failures[node_id] for node_id in sorted(self._failures)]
            self._outage.failed(reason="; ".join(reasons[:REASONS_MAX]), brokers=len(reasons))
        else:
            self._outage.over()

    async def _read_broker(self, node_id: int) -> None:
        if node_id not in self._connections:
            self._connections[node_id] = self._connect(lambda: filter(None, [self._brokers().get(node_id)]))
        try:
            storage = await self._connections[node_id].ask(_describe, READ_S)
        except QuestionError as error:
            self._failures[node_id] = f"broker {node_id}: {error}"
        else:
            self.budgets.read(node_id, storage, self._now_ms())


async def _describe(broker: QueriedBroker) -> BrokerStorage:
    """Return what a broker stores. Raises QuestionError."""
    version = broker.version(ApiKey.DESCRIBE_LOG_DIRS, versions(ApiKey.DESCRIBE_LOG_DIRS) or NONE)
    if version is None:
        raise _failed(broker, "it has no DescribeLogDirs")
    answer = await broker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, version)
    # Brokers before DescribeLogDirs v3 refuse by an answer without directories.
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED or not (
        answer.results or answer.error_code
    ):
        raise _failed(broker, _NO_RIGHT)
    if answer.error_code or all(directory.error_code for directory in answer.results):
        code = answer.error_code or answer.results[0].error_code
        raise _failed(broker, f"it answers error {code}")
    return await trio.to_thread.run_sync(_added_up, answer)


def _failed(broker: QueriedBroker, what: str) -> QuestionError:
    return QuestionError(f"{broker.connection.address}: {what}", reachable=True, foreign=False)


def _added_up(answer: DescribeLogDirsResponse) -> BrokerStorage:
    stored: dict[str, int] = {}
    for directory in answer.results:
        for topic in directory.topics:
            size = sum(partition.partition_size for partition in topic.partitions)
            stored[topic.name] = stored.get(topic.name, 0) + max(size, 0)
    usable = [each.usable_bytes for each in answer.results if not each.error_code and each.usable_bytes >= 0]
    return BrokerStorage(stored, min(usable, default=None))


def _compared(reading: StorageReading) -> str:
    number = "unknown" if reading.number is None else size_text(reading.number)
    return f"{reading.mark.exceeded}: {number} of {size_text(reading.mark.value)}"


def _write(reading: StorageReading) -> None:
    """Log that a budget is over, or is kept again."""
    details = {
        "budget": str(reading.mark),
        "bytes": reading.number,
        "mark": reading.mark.value,
        "over_byte_rate": reading.over_rate,
        "shadow": reading.is_shadow,
    }
    if reading.is_over:
        log.warning("storage budget over", **details)
    else:
        log.info("storage budget kept again", **details)
