"""Read the quotas of a running ZooKeeper, for `weir quotas import --zookeeper`, without changing
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import chain
from typing import Final

from weir.proxy.control.zookeeper import ZooKeeper, ZooKeeperAddress
from weir.quotas.table.zookeeper_layout import CLIENTS, IPS, OF_A_USER, USERS, ZooKeeperQuotas

SAID_EVERY: Final = 500
"""Number of znodes between two calls with the progress."""


def read(place: ZooKeeperAddress, quotas: ZooKeeperQuotas, say: Callable[[str], None]) -> None:
    """Read each znode that holds quotas, and add its content to `quotas`; skip znodes that Weir may not read.
    `say` is called with progress. Raises ZooKeeperError if ZooKeeper cannot be read.
    """
    who = "this user" if place.digest is not None else "those without --zookeeper-digest"

    def denied(path: str) -> None:
        quotas.skip(path, None, f"ZooKeeper does not let {who} read it")

    with closing(ZooKeeper(place, denied)) as zookeeper:
        zookeeper.check()
        reader = _Reader(zookeeper, quotas, say)
        users = reader.nodes([USERS])
        reader.nodes([CLIENTS])
        reader.nodes([IPS])
        reader.nodes([f"{user}/{OF_A_USER}" for user in users])


class _Reader:
    """Reads the quotas of many znodes."""

    def __init__(self, zookeeper: ZooKeeper, quotas: ZooKeeperQuotas, say: Callable[[str], None]) -> None:
        self._zookeeper = zookeeper
        self._quotas = quotas
        self._say = say

    def nodes(self, containers: Iterable[str]) -> list[str]:
        """Read each child of the znodes `containers`; return the paths of the children that have children of
        their own.
        """
        paths = list(chain.from_iterable(self._zookeeper.children(list(containers))))
        parents: list[str] = []
        for number, node in enumerate(self._zookeeper.contents(paths), start=1):
            self._quotas.read(node.path, node.content)
            if node.stat.children_count:
                parents.append(node.path)
            if number % SAID_EVERY == 0:
                self._say(f"{self._quotas.nodes} nodes read")
        self._say(f"{self._quotas.nodes} nodes read")
        return parents
