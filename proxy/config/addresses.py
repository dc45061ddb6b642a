"""Addresses in the configuration, HOST:PORT."""

from __future__ import annotations

import re
from typing import Final

from weir.proxy.addresses import PORT_MAX, Address
from weir.proxy.config.settings import ConfigError

_ADDRESS: Final = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]*)):(?P<port>\d{1,5})", re.ASCII)


def parse_address(text: str, key: str, *, host_needed: bool = True) -> Address:
    """Return the address in HOST:PORT or [IPV6]:PORT. Raises ConfigError, whose text names `key`."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match else 0
    host = (match["v6"] or match["host"]) if match else ""
    if match and not 0 < port <= PORT_MAX:
        raise ConfigError(f"{key} is {text!r}, its port must be 1 to {PORT_MAX}")
    if match is None or (host_needed and not host):
        raise ConfigError(f"{key} is {text!r}, must be HOST:PORT, for example kafka-1:9092 or [::1]:9092")
    return Address(host, port)
