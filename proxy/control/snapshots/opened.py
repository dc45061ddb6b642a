"""The open connections of a server, as snapshots read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from weir.proxy.net.relay import Relay


class Opened(NamedTuple):
    """Facts about an open connection that its relay does not know."""

    id: int
    """Number of the connection: different for all connections of a process."""
    listener: str
    """Name of Weir's listener: `bootstrap`, `broker 2` or `replication 2`."""
    node_id: int | None
    """Node id of the broker; None if Weir does not know the broker's id."""
    opened_ms: int
    """Time (ms) at which the relay began, on the reactor's clock."""
    tls: bool
    """True if the client uses TLS."""


OpenRelays: TypeAlias = Mapping[Relay, Opened]
