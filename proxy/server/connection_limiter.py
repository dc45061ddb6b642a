"""The gate: which connections are accepted, and when (KIP-612), before anything else is done for them.

The numbers are `quotas.connections`'; this joins them to the configuration, the clock and the addresses that
sockets have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from proxy.close_reasons import CloseReason
from proxy.config.connection_rules import ConnectionRules, plain_ip
from quotas import QuotaTable
from quotas.connections import ConnectionCounts, ConnectionQuotas

if TYPE_CHECKING:
    from collections.abc import Callable


class Rejection(NamedTuple):
    """Why a connection is not let in, and for how long its socket is to be kept."""

    reason: CloseReason
    detail: str
    hold_s: float | None = None
    """None: as any refused client's."""


class ConnectionLimiter:
    """Every connection passes here twice: `delay_s` before it is taken up, `enter` when it is.

    One whose `enter` returned None must `leave` once.
    """

    def __init__(self, rules: ConnectionRules, table: QuotaTable, now_ms: Callable[[], int]) -> None:
        """`table` has the rates of IP addresses; `now_ms` is the clock of all quotas."""
        self.quotas = ConnectionQuotas(
            table,
            total_rate=rules.total_rate,
            listener_rate=rules.listener_rate,
            num_samples=rules.num_samples,
            window_s=rules.window_s,
        )
        self._counts = ConnectionCounts(rules.per_ip_max, rules.overrides)
        self._now_ms = now_ms

    def delay_s(self, node_id: int | None) -> float:
        """A connection is there: how late it, and those behind it, are to be accepted."""
        return self.quotas.arrive(node_id, self._now_ms()) / 1000

    def enter(self, node_id: int | None, host: str) -> Rejection | None:
        """Let a connection of this address in, or say why not. The rate comes first, as in Kafka."""
        ip = plain_ip(host)
        wait_ms = self.quotas.admit(node_id, ip, self._now_ms())
        if wait_ms:
            detail = f"connection_creation_rate of {ip}"
            return Rejection(CloseReason.CONNECTION_RATE, detail, wait_ms / 1000)
        if not self._counts.open(ip):
            return Rejection(
                CloseReason.CONNECTIONS_PER_IP, f"{ip} has as many as max_connections_per_ip allows"
            )
        return None

    def leave(self, host: str) -> None:
        """A connection that had entered has ended."""
        self._counts.close(plain_ip(host))
