"""The IP addresses and ports at which this Weir listens, so that it never connects to itself.

A broker may advertise them: Weir took over the address of a former TCP proxy, or the broker's container calls
itself `localhost`. A connection of Weir to itself would be served by the next one, and so on, until no client
is accepted any more.
"""

# mypyc: skip, because it compiles no subclass of OSError.

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

from weir.proxy.addresses import Address
from weir.proxy.net.sockets import unmapped

_NOBODYS: Final = "192.0.2.1"
"""An address that no host has (RFC 5737)."""


class OwnAddressError(OSError):
    """Error: an address leads to Weir itself."""


class OwnListeners:
    """The listening sockets of this Weir."""

    def __init__(self) -> None:
        self._ips: dict[int, set[str]] = {}
        """IP addresses of the sockets by port."""

    def add(self, names: Iterable[tuple[str, int]]) -> None:
        """Add the IP address and port of each socket."""
        for ip, port in names:
            self._ips.setdefault(port, set()).add(unmapped(ip))

    def names(self) -> list[tuple[str, int]]:
        """Return the IP address and port of each socket."""
        return [(ip, port) for port, ips in self._ips.items() for ip in sorted(ips)]

    def has(self, ip: str, port: int) -> bool:
        """Return True if a connection to this IP address and port would reach one of the sockets."""
        bound = self._ips.get(port)
        if bound is None:
            return False
        if ipaddress.ip_address(ip.partition("%")[0]).is_unspecified:
            return any(is_local(each) for each in bound)  # the kernel connects to a loopback address
        return unmapped(ip) in bound or (bool(bound & {"0.0.0.0", "::"}) and is_local(ip))

    def refuse(self, ip: str, port: int) -> OwnAddressError | None:
        """Return the error of a connection to this IP address and port; None if it does not lead to Weir."""
        if not self.has(ip, port):
            return None
        return OwnAddressError(errno.ELOOP, f"Weir itself listens at {Address(ip, port)}")


def is_local(ip: str) -> bool:
    """Return True if a connection to this IP address reaches this host. Return False for an address of this
    host, other than loopback addresses, if the system lets sockets be bound to any address
    (net.ipv4.ip_nonlocal_bind).
    """
    address = ipaddress.ip_address(ip.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    if address.is_loopback or address.is_unspecified:
        return True
    return _can_bind(str(address)) and not _can_bind(_NOBODYS)


def _can_bind(ip: str) -> bool:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:  # UDP: takes no TCP port
            sock.bind((ip, 0))
    except OSError:
        return False
    return True
