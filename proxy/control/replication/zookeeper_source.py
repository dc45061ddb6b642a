"""Replication throttles in ZooKeeper, where brokers up to 3.9 keep configurations.

    /config/brokers/<node id>     rates of a broker; `<default>` for all brokers
    /config/topics/<topic>        lists of a topic
    /config/changes               a child for each change, which Kafka's tools create for the brokers

A node contains `{"version": 1, "config": {"leader.replication.throttled.rate": "1024"}}`. Weir looks every
two seconds if a child of these three nodes was created or deleted, and reads all nodes only then, and once
a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec
import trio

from weir.proxy.control.replication.readable import LoggedProblems, ThrottleParser
from weir.proxy.control.replication.sources import Changed, SourceError
from weir.proxy.control.zookeeper import ZooKeeper, ZooKeeperAddress, ZooKeeperError
from weir.quotas.replication.throttles import KEYS_OF, ConfigKey, ReplicationThrottles, ResourceType
from weir.quotas.table.entities import DEFAULT
from weir.quotas.table.zookeeper_layout import CONFIG

LOOK_S: Final = 2.0
"""Pause (s) between two looks for changes."""
READ_ALL_S: Final = 60.0
"""Time (s) after which all nodes are read again, although no change was seen."""
CLOSE_S: Final = 2.0
"""Time (s) to close the connection to ZooKeeper when Weir ends."""
CHANGES: Final = f"{CONFIG}/changes"
TYPE_OF: Final = {
    f"{CONFIG}/brokers": ResourceType.BROKER,
    f"{CONFIG}/topics": ResourceType.TOPIC,
}
"""Parent node → type of the resources that its children are named after."""


class Content(msgspec.Struct):
    """JSON content of a znode: values by the names of configurations, not decoded."""

    config: dict[str, msgspec.Raw] = {}


Versions: TypeAlias = tuple[int | None, ...]
"""Number of changes of the children, for each of the nodes that Weir looks at; None if there is no node."""


class ThrottleReading(NamedTuple):
    """Throttles that were read together."""

    throttles: ReplicationThrottles
    versions: Versions
    """Versions before the nodes were read."""


class ThrottleReader:
    """Reads the throttles in ZooKeeper through a connection that stays open. The methods block."""

    def __init__(self, place: ZooKeeperAddress, problems: LoggedProblems) -> None:
        self._place = place
        self._problems = problems
        self._parser = ThrottleParser(problems)
        self._zookeeper: ZooKeeper | None = None

    def read(self, known: Versions | None) -> ThrottleReading | None:
        """Return the throttles; None if the children have not changed since `known`. Raises ZooKeeperError;
        the next call connects again then.
        """
        try:
            zookeeper = self._zookeeper = self._zookeeper or self._connect()
            versions = tuple(_children_version(zookeeper, path) for path in (CHANGES, *TYPE_OF))
            if versions == known:
                return None
            return ThrottleReading(self._parser.parse(dict(self._values(zookeeper))), versions)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one."""
        zookeeper, self._zookeeper = self._zookeeper, None
        if zookeeper is not None:
            zookeeper.close()

    def _connect(self) -> ZooKeeper:
        zookeeper = ZooKeeper(self._place, self._denied)
        try:
            zookeeper.check()
        except BaseException:
            zookeeper.close()
            raise
        return zookeeper

    def _denied(self, path: str) -> None:
        reason = "ZooKeeper does not let Weir read it"
        self._problems.say("replication throttles of node not read", path, node=path, reason=reason)

    def _values(self, zookeeper: ZooKeeper) -> Iterator[tuple[ConfigKey, str]]:
        for parent, kind in TYPE_OF.items():
            paths = list(chain.from_iterable(zookeeper.children([parent])))
            for path, content, _stat in zookeeper.contents(paths):
                yield from self._of_node(kind, path, content)

    def _of_node(
        self, kind: ResourceType, path: str, content: bytes | None
    ) -> Iterator[tuple[ConfigKey, str]]:
        name = path.rpartition("/")[2]
        if kind is ResourceType.BROKER and name == DEFAULT.value:
            name = ""
        try:
            config = msgspec.json.decode(content, type=Content).config if content else {}
            for key in KEYS_OF[kind].keys() & config.keys():
                yield ConfigKey(kind, name, key), str(msgspec.json.decode(config[key], type=str | int))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = f"cannot be read: {error}"
            self._problems.say(
                "replication throttles of node not read", (path, content), node=path, reason=reason
            )


def _children_version(zookeeper: ZooKeeper, path: str) -> int | None:
    stat = zookeeper.stat(path)
    return None if stat is None else stat.cversion


class ZooKeeperSource:
    """The throttles in ZooKeeper; implements `sources.ThrottleSource`."""

    name = "zookeeper"

    def __init__(self, place: ZooKeeperAddress) -> None:
        """Begin without a connection; `follow` opens one."""
        self._reader = ThrottleReader(place, LoggedProblems(self.name))
        self._altered = trio.Event()

    def altered(self) -> None:
        """Look again now."""
        self._altered.set()

    async def follow(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        """Look for changes every two seconds, and read the throttles if there are some, until cancelled."""
        try:
            while True:
                await self._read_for_a_minute(changed, failed)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                await trio.to_thread.run_sync(self._reader.close, abandon_on_cancel=True)

    async def _read_for_a_minute(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        """Read all throttles, then look for changes, until a minute is over or ZooKeeper cannot be read."""
        versions: Versions | None = None
        ends_s = trio.current_time() + READ_ALL_S
        while trio.current_time() < ends_s:
            self._altered = trio.Event()
            try:
                found = await trio.to_thread.run_sync(self._reader.read, versions, abandon_on_cancel=True)
            except ZooKeeperError as error:
                versions = None
                failed(SourceError(str(error)))
            else:
                if found is not None:
                    versions = found.versions
                    await changed(found.throttles)
            with trio.move_on_after(LOOK_S):
                await self._altered.wait()
