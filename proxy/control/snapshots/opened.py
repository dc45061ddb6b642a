"""The open connections of a worker, as snapshots read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from weir.proxy.net.relay import Relay

READ_EVERY_MS: Final = 900
"""Least time (ms) between two readings of a connection's bytes. Less than a second, because a worker reads
once a second, and may be early.
"""


@dataclass(slots=True)
class ByteRates:
    """Bytes that a connection has received until its latest reading, and the rates between its two latest
    readings. A worker takes a reading for each of its reports.
    """

    read_ms: int
    """Time (ms) of the latest reading; of the beginning of the connection before the first."""
    in_bytes: int = 0
    out_bytes: int = 0
    in_bytes_per_s: float = 0.0
    """Rate of bytes from the client; 0 before the first reading."""
    out_bytes_per_s: float = 0.0
    """Rate of bytes from the broker; 0 before the first reading."""

    def read(self, now_ms: int, in_bytes: int, out_bytes: int) -> None:
        """Note the bytes received so far, unless the latest reading is too recent."""
        span_ms = now_ms - self.read_ms
        if span_ms >= READ_EVERY_MS:
            self.in_bytes_per_s = round((in_bytes - self.in_bytes) * 1000 / span_ms, 2)
            self.out_bytes_per_s = round((out_bytes - self.out_bytes) * 1000 / span_ms, 2)
            self.read_ms, self.in_bytes, self.out_bytes = now_ms, in_bytes, out_bytes


class OpenConnection(NamedTuple):
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
    rates: ByteRates


OpenRelays: TypeAlias = Mapping[Relay, OpenConnection]
