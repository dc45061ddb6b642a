"""The setting `proxy_protocol_from`: load balancers whose PROXY headers Weir believes."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

from weir.proxy.config.settings import ConfigError

if TYPE_CHECKING:
    from weir.proxy.config.settings import Settings

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


def proxy_networks(settings: Settings) -> Networks:
    """Return the networks in `proxy_protocol_from`. Raises ConfigError."""
    texts = [text.strip() for text in settings.proxy_protocol_from.split(",")]
    return tuple(_network(text) for text in texts if text)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"proxy_protocol_from has {text!r}, must be an IP address or network, for example 10.0.0.0/8 "
            f"({error})"
        ) from None


def is_listed(networks: Networks, host: str) -> bool:
    """Return True if the IP address `host`, which may have a zone, is in one of the networks."""
    if not networks:
        return False
    address = ip_address(host.partition("%")[0])
    return any(address in network for network in networks)
