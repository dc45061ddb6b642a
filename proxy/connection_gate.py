"""The gate: which connections are accepted, and when (KIP-612), before anything else is done for them.

The numbers are `quotas.connections`'; this joins them to the configuration, the clock and the addresses that
sockets have.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from proxy.config_error import ConfigError
from proxy.reasons import CloseReason
from quotas import QuotaTable
from quotas.connections import ConnectionCounts, ConnectionQuotas

if TYPE_CHECKING:
    from proxy.settings import Settings

_OVERRIDE = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:\[\]]+)):(?P<count>\d{1,9})")


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """What the configuration says about connections; rates per second, 0 for no limit."""

    total_rate: int
    listener_rate: int
    per_ip_max: int
    overrides: dict[str, int]
    """Other numbers than `per_ip_max`, by address."""
    num_samples: int
    window_s: int


class Denial(NamedTuple):
    """Why a connection is not let in, and for how long its socket is to be kept."""

    reason: CloseReason
    detail: str
    hold_s: float | None = None
    """None: as any refused client's."""


def connection_rules(settings: Settings) -> ConnectionRules:
    """Check what is configured. Raises ConfigError."""
    for key in (
        "max_connection_creation_rate",
        "listener_max_connection_creation_rate",
        "max_connections_per_ip",
    ):
        if getattr(settings, key) < 0:
            raise ConfigError(f"{key} is {getattr(settings, key)}, must not be negative; 0 is no limit")
    return ConnectionRules(
        settings.max_connection_creation_rate,
        settings.listener_max_connection_creation_rate,
        settings.max_connections_per_ip,
        dict(
            map(_override, filter(None, map(str.strip, settings.max_connections_per_ip_overrides.split(","))))
        ),
        settings.quota_window_num,
        settings.quota_window_size_seconds,
    )


def plain_ip(host: str) -> str:
    """Return an IP address in its usual spelling; an IPv4 one as itself, not mapped to IPv6; no zone.

    >>> plain_ip("::ffff:10.0.0.1"), plain_ip("FE80:0::1%eth0")
    ('10.0.0.1', 'fe80::1')
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _override(text: str) -> tuple[str, int]:
    match = _OVERRIDE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return plain_ip(match["v6"] or match["v4"]), int(match["count"])
    except ValueError:
        raise ConfigError(
            f"max_connections_per_ip_overrides has {text!r}, must be IP:NUMBER, "
            "for example 10.0.0.1:100 or [::1]:100"
        ) from None


class ConnectionGate:
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

    def enter(self, node_id: int | None, host: str) -> Denial | None:
        """Let a connection of this address in, or say why not. The rate comes first, as in Kafka."""
        ip = plain_ip(host)
        wait_ms = self.quotas.admit(node_id, ip, self._now_ms())
        if wait_ms:
            detail = f"connection_creation_rate of {ip}"
            return Denial(CloseReason.CONNECTION_RATE, detail, wait_ms / 1000)
        if not self._counts.open(ip):
            return Denial(
                CloseReason.CONNECTIONS_PER_IP, f"{ip} has as many as max_connections_per_ip allows"
            )
        return None

    def leave(self, host: str) -> None:
        """A connection that had entered has ended."""
        self._counts.close(plain_ip(host))
