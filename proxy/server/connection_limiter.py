"""The connection limiter: which connections are accepted, and when (KIP-612), before any other work for them.

`quotas.connections` computes the decisions; this module applies them to the configuration, the clock and the
addresses of sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import Config, plain_ip
from weir.proxy.config.settings import Settings
from weir.quotas.connections import ConnectionCounts, ConnectionQuotas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Rejection(NamedTuple):
    """The close reason for a rejected connection, and the time for which its socket is kept open."""

    reason: CloseReason
    detail: str
    hold_s: float | None = None
    """Time (s) for which to keep the socket open; None for the default time of refused clients."""


class ConnectionLimiter:
    """Decides about connections. Call `delay_s` before accepting a connection, `enter` after accepting it,
    and `leave` at the end of each connection that `enter` has not rejected.
    """

    def __init__(
        self, config: Config, quotas: ConnectionQuotas, now_ms: Callable[[], int], processes: int = 1
    ) -> None:
        """Begin without connections. `now_ms` is the clock of all quotas (ms). `processes` is the number of
        processes that accept the same clients.
        """
        self.quotas = quotas
        self._open = 0
        self._others = processes - 1
        self._counts = ConnectionCounts(*config.connections_per_ip)
        self._now_ms = now_ms
        self.tell: Callable[[str, bool], None] | None = None
        """Function (address, True if opened) to call when a connection was opened or closed; None for none.
        """

    def use(self, config: Config) -> None:
        """Use the configured rates, and maxima of connections per address, from now on."""
        limit_connections(self.quotas, config.settings)
        self._counts.limit(*config.connections_per_ip)

    def delay_s(self, node_id: int | None) -> float:
        """Return the time (s) by which to delay accepting a connection at this listener, and the connections
        behind it.
        """
        return self.quotas.arrive(node_id, self._now_ms()) / 1000

    def enter(self, node_id: int | None, host: str) -> Rejection | None:
        """Count a connection from this address and return None; or reject the connection and return why. The
        rate of the address is checked before its number of connections, as in Kafka.
        """
        ip = plain_ip(host)
        wait_ms = self.quotas.admit(node_id, ip, self._now_ms())
        if wait_ms:
            detail = f"connection_creation_rate of {ip}"
            return Rejection(CloseReason.CONNECTION_RATE, detail, wait_ms / 1000)
        if not self._counts.open(ip):
            return Rejection(
                CloseReason.CONNECTIONS_PER_IP, f"{ip} has as many as max_connections_per_ip allows"
            )
        self._open += 1
        if self.tell is not None:
            self.tell(ip, True)
        return None

    def leave(self, host: str) -> None:
        """Count the end of a connection from this address that `enter` has not rejected."""
        ip = plain_ip(host)
        self._counts.close(ip)
        self._open -= 1
        if self.tell is not None:
            self.tell(ip, False)

    def change_elsewhere(self, opened: Iterable[str], closed: Iterable[str]) -> None:
        """Count connections that other processes have opened and closed, by their canonical addresses."""
        self._counts.change_elsewhere(opened, closed)

    @property
    def has_others(self) -> bool:
        """True if other processes accept the same clients."""
        return self._others > 0

    @property
    def ahead(self) -> int:
        """Number of connections that this process has more than the others have on average; 0 if it has
        fewer, or is the only one.
        """
        return max(self._open - -(-self._counts.elsewhere // self._others), 0) if self._others else 0

    @property
    def elsewhere(self) -> int:
        """Number of open connections at other processes."""
        return self._counts.elsewhere


def limit_connections(quotas: ConnectionQuotas, settings: Settings) -> None:
    """Put the configured rates of new connections in force."""
    quotas.limit(settings.max_connection_creation_rate)
