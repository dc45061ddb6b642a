"""Connection limits, checked (KIP-402, KIP-612)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.config.config_error import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import Settings

_OVERRIDE = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[^:\[\]]+)):(?P<count>\d{1,9})")


@dataclass(frozen=True, slots=True)
class ConnectionRules:
    """Connection limits; rates per second, 0 for no limit."""

    total_rate: int
    listener_rate: int
    per_ip_max: int
    overrides: dict[str, int]
    """Exceptions from `per_ip_max`, by address."""
    num_samples: int
    window_s: int


def connection_rules(settings: Settings) -> ConnectionRules:
    """Check the settings. Raises ConfigError."""
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
    """Return an IP address in its usual spelling, without a zone; IPv4 addresses not mapped to IPv6.

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
