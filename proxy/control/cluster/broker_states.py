"""Which brokers can be reached, as far as Weir knows from its connections and from the cluster's metadata.

A broker is down after a failed connection, until a connection succeeds; and while the other brokers do not
list it. A broker that nobody has tried to reach counts as up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

import structlog

from weir.proxy.outage import Outage

log = structlog.get_logger("weir")

QUIET_S: Final = 5.0
"""Time (s) after the latest failure from which a success is logged as the end of the outage."""
UNLISTED: Final = "the other brokers do not list it"


class BrokerStates:
    """The state of each broker by node id: up or down. Logs the changes."""

    def __init__(self) -> None:
        self._unlisted: set[int] = set()
        self.outages: dict[int, Outage] = {}
        """Outages of the brokers by node id; brokers that were always up are missing."""
        self.login_refused = ""
        """Reason why the brokers refuse Weir's own login; empty unless they do."""

    def is_up(self, node_id: int) -> bool:
        """Return True unless the broker is known to be down."""
        return node_id not in self.outages or not self.outages[node_id].failing

    def is_listed(self, node_id: int) -> bool:
        """Return True unless the cluster's latest metadata leaves out the broker: it is down, or has left the
        cluster.
        """
        return node_id not in self._unlisted

    def reached(self, node_id: int | None) -> None:
        """Record a successful connection to a broker. `node_id` is None for a broker whose node id is
        unknown; such a connection is ignored.
        """
        if node_id in self.outages:
            self.outages[node_id].over(node_id=node_id)

    def failed(self, node_id: int | None, reason: str) -> None:
        """Record a failed connection to a broker. `node_id` is None for a broker whose node id is unknown;
        such a connection is ignored.
        """
        if node_id is not None:
            self.outages.setdefault(node_id, _outage()).failed(node_id=node_id, reason=reason)

    def listed(self, node_ids: Collection[int], known: Iterable[int]) -> None:
        """Record which of the brokers in `known` the cluster's metadata lists, in `node_ids`: a broker is
        down while it is not listed.
        """
        for node_id in known:
            if node_id not in node_ids:
                self._unlisted.add(node_id)
                self.failed(node_id, UNLISTED)
            elif node_id in self._unlisted or self.is_up(node_id):
                self._unlisted.discard(node_id)
                self.reached(node_id)


_outage = partial(Outage, log, "broker is down", "broker is up again", level="warning", quiet_s=QUIET_S)
