"""Puts replication throttles in force, together with the ids of the topics that they name.

The ids are asked before new throttles are put in force: otherwise fetches that name a topic by its id would
escape in between. If the cluster cannot be asked, the throttles are put in force nevertheless, and the ids
are asked again every second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

import structlog
import trio

from weir.proxy.addresses import Address
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.replication.broker_source import BrokerSource
from weir.proxy.control.replication.cluster_connection import ClusterConnection
from weir.proxy.control.replication.sources import SourceError, ThrottleSource
from weir.proxy.control.replication.table_source import TableSource
from weir.proxy.control.replication.topic_ids import TopicIds, ask_topic_ids
from weir.proxy.control.replication.zookeeper_source import ZooKeeperSource
from weir.proxy.control.supervisor import Works
from weir.proxy.control.zookeeper import ZooKeeperAddress, ZooKeeperError, check_address
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.proxy.addresses import AddressBook
    from weir.proxy.config.config import Config
    from weir.proxy.control.quota_registry import QuotaRegistry
    from weir.proxy.handlers.replication.replication import Replication
    from weir.quotas.replication.throttles import ReplicationThrottles

log = structlog.get_logger("weir.replication")

ASK_AGAIN_S: Final = 1.0
"""Minimum time (s) between two questions for topic ids, except for those before new throttles."""
SHARE: Final = 20
"""Minimum pause between two questions for topic ids, as a multiple of the time that the last one took."""


class ReplicationFollower:
    """Keeps the throttles and the topic ids of a `Replication` up to date, on Trio's thread."""

    def __init__(
        self,
        source: ThrottleSource,
        replication: Replication,
        cluster: ClusterConnection,
        refresh_s: float,
    ) -> None:
        """Begin without throttles. Topic ids are asked from `cluster`, again every `refresh_s`."""
        self._source = source
        self._replication = replication
        self._cluster = cluster
        self._refresh_s = refresh_s
        self._works: Works = _nothing
        self.on_change: Callable[[], None] = _nothing
        """Function to call when other throttles are in force, or topics got other ids. Set it before calling
        `follow`.
        """
        self._token: trio.lowlevel.TrioToken | None = None
        self._turn = trio.Lock()
        """Held while topic ids are asked and throttles put in force."""
        self._wanted = trio.Event()
        """Set when topic ids are to be asked again soon."""
        self._next_s = -math.inf
        """Earliest time (s) of the next question for topic ids, except for one before new throttles."""
        self._is_called = False
        """True if `on_unknown_topic` was called since topic ids were last asked."""
        self._unread = Outage(
            log,
            "replication throttles not read, the last known stay in force",
            "replication throttles read again",
            clock=trio.current_time,
        )
        self._unasked = Outage(
            log,
            "ids of throttled topics not known, their replicas are not throttled",
            "ids of throttled topics known again",
            clock=trio.current_time,
        )

    @property
    def source_name(self) -> str:
        """Name of the source in logs."""
        return self._source.name

    def altered_at_broker(self) -> None:
        """Read the source again soon, because Weir has forwarded an alteration of configurations to a broker.
        Callable on the reactor's thread, and at any rate.
        """
        if self._token is not None:
            self._token.run_sync_soon(self._source.altered, idempotent=True)

    async def follow(self, works: Works) -> None:
        """Follow the source until cancelled: work for `Supervisor.keep_running`."""
        self._token = trio.lowlevel.current_trio_token()
        self._replication.on_unknown_topic = self._unknown_topic
        self._works = works
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._source.follow, self._changed, self._failed)
                nursery.start_soon(self._keep_ids)
        finally:
            self._replication.on_unknown_topic = None
            await self._cluster.aclose()

    # Throttles

    async def _changed(self, throttles: ReplicationThrottles) -> None:
        async with self._turn:
            quotas = self._replication.quotas
            is_new = throttles != quotas.throttles
            if is_new:
                if not throttles.topics <= set(self._replication.topic_names.values()):
                    await self._ask_ids(throttles.topics)
                quotas.use(throttles)
                self.on_change()
        if self._unread:
            self._unread.over(source=self._source.name, throttles=len(throttles))
        elif is_new:
            log.info("replication throttles loaded", source=self._source.name, throttles=len(throttles))
        self._works()

    def _failed(self, error: SourceError) -> None:
        self._unread.failed(source=self._source.name, reason=str(error))

    # Topic ids

    def _unknown_topic(self) -> None:
        """Have topic ids asked again, at most once a second."""
        if not self._is_called and self._token is not None:
            self._is_called = True
            self._token.run_sync_soon(self._want_ids)

    def _want_ids(self) -> None:
        self._wanted.set()

    async def _keep_ids(self) -> None:
        """Ask for the ids of the throttled topics every `refresh_s`, and when they are wanted."""
        while True:
            with trio.move_on_after(self._refresh_s):
                await self._wanted.wait()
            await trio.sleep_until(self._next_s)
            self._wanted, self._is_called = trio.Event(), False
            async with self._turn:
                await self._ask_ids(self._replication.quotas.throttles.topics)

    async def _ask_ids(self, topics: Collection[str]) -> None:
        """Ask for the ids of these topics. If no broker tells them, log the reason; ids that are known stay,
        and are asked again soon.
        """
        began_s = trio.current_time()
        try:
            found = await self._ids_of(topics)
        except QuestionError as error:
            self._ids_missing(str(error))
        else:
            if found.names != self._replication.topic_names:
                self._replication.topic_names = found.names
                self.on_change()
            took_s = trio.current_time() - began_s
            self._next_s = trio.current_time() + max(ASK_AGAIN_S, SHARE * took_s)
            if found.missing:
                self._ids_missing(found.missing)
            else:
                self._unasked.over()

    async def _ids_of(self, topics: Collection[str]) -> TopicIds:
        if not topics:
            await self._cluster.aclose()
            return TopicIds({})
        return await ask_topic_ids(self._cluster, topics)

    def _ids_missing(self, reason: str) -> None:
        self._unasked.failed(reason=reason)
        self._next_s = trio.current_time() + ASK_AGAIN_S
        self._wanted.set()


def replication_follower(
    config: Config,
    registry: QuotaRegistry,
    replication: Replication,
    address_book: AddressBook,
) -> ReplicationFollower:
    """Return a follower of the configured source. Raises ConfigError."""
    settings = config.settings
    access, timeout_s = Access.of(config), config.connect_timeout_s
    refresh_s = settings.refresh_s

    def brokers() -> Iterable[Address]:
        return address_book.candidates(config.upstream)

    def source() -> ThrottleSource:
        match settings.replication_throttles:
            case "weir":
                return TableSource(registry)
            case "brokers":
                return BrokerSource(brokers, access, timeout_s, refresh_s)
            case connect:
                return ZooKeeperSource(_checked(connect, timeout_s))

    cluster = ClusterConnection(brokers, access, timeout_s)
    return ReplicationFollower(source(), replication, cluster, refresh_s)


def _checked(connect: str, timeout_s: float) -> ZooKeeperAddress:
    place = ZooKeeperAddress(connect, None, timeout_s, option="replication_throttles")
    try:
        check_address(place)
    except ZooKeeperError as error:
        raise ConfigError(str(error)) from None
    return place


def _nothing() -> None:
    """Do nothing."""
