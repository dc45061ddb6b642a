"""Which brokers can be reached, as far as Weir knows from its connections and from the cluster's metadata.

A broker is down after a failed connection, until a connection succeeds; and while the other brokers do not
list it. A broker that nobody has tried to reach counts as up.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, NamedTuple

import structlog

from weir.proxy.outage import Outage

log = structlog.get_logger("weir")

QUIET_S: Final = 5.0
"""Time (s) after the latest failure from which a success is logged as the end of the outage."""
UNLISTED: Final = "the other brokers do not list it"


class Change(NamedTuple):
    """The latest change of a broker's state, from up to down or back."""

    at_s: float
    """Unix time (s) of the change."""
    reason: str | None
    """Reason, as last told, why the broker is down; None if it is up."""


class BrokerStates:
    """The state of each broker by node id: up or down. Logs the changes."""

    def __init__(self) -> None:
        """Begin with all brokers up."""
        self._down: set[int] = set()
        self._unlisted: set[int] = set()
        self._outages: dict[int, Outage] = {}
        self.login_refused = ""
        """Reason why the brokers refuse Weir's own login; empty unless they do."""
        self.changes: dict[int, Change] = {}
        """The latest change of each broker's state; brokers that were always up are missing."""

    def is_up(self, node_id: int) -> bool:
        """Return True unless the broker is known to be down."""
        return node_id not in self._down

    def reached(self, node_id: int | None) -> None:
        """Record a successful connection to a broker. `node_id` is None for a broker whose node id is
        unknown; such a connection is ignored.
        """
        if node_id in self._outages:
            if node_id in self._down:
                self._down.discard(node_id)
                self.changes[node_id] = Change(time.time(), None)
            self._outages[node_id].over(node_id=node_id)

    def failed(self, node_id: int | None, reason: str) -> None:
        """Record a failed connection to a broker. `node_id` is None for a broker whose node id is unknown;
        such a connection is ignored.
        """
        if node_id is not None:
            was_down = node_id in self._down
            self._down.add(node_id)
            self.changes[node_id] = Change(self.changes[node_id].at_s if was_down else time.time(), reason)
            self._outages.setdefault(node_id, _outage()).failed(node_id=node_id, reason=reason)

    def listed(self, node_ids: Collection[int], known: Iterable[int]) -> None:
        """Record which of the brokers in `known` the cluster's metadata lists, in `node_ids`: a broker is
        down while it is not listed.
        """
        for node_id in known:
            if node_id not in node_ids:
                self._unlisted.add(node_id)
                self.failed(node_id, UNLISTED)
            elif node_id in self._unlisted or node_id not in self._down:
                self._unlisted.discard(node_id)
                self.reached(node_id)


_outage = partial(Outage, log, "broker is down", "broker is up again", level="warning", quiet_s=QUIET_S)
