"""Listening sockets that another process has opened for this one: a Weir that hands over, or systemd.

Connections that wait in the queue of an inherited socket are accepted by this process, so no client notices
that the process has changed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from weir.proxy.net import sockets

FIRST_FD: Final = 3
"""First descriptor that systemd passes (sd_listen_fds)."""
_DIGITS_MAX: Final = 5
"""Maximum number of digits of LISTEN_FDS; a malformed number must not delay the start."""
EVERYWHERE: Final = ("::", "0.0.0.0")
"""Addresses of sockets that listen on every interface."""


class Inherited:
    """Inherited sockets by their IP address and port; each can be taken once."""

    def __init__(self, given: Iterable[socket.socket] = ()) -> None:
        """Begin with these sockets. Sockets that are not TCP sockets are closed."""
        self._by_address: dict[tuple[str, int], socket.socket] = {}
        for sock in given:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                ip, port = sock.getsockname()[:2]
                self._by_address[ip, port] = sock
            else:
                sock.close()

    def __len__(self) -> int:
        """Return the number of sockets that have not been taken."""
        return len(self._by_address)

    def listen(self, ips: Sequence[str], port: int) -> list[socket.socket]:
        """Return listening sockets for these IP addresses, "" for every interface: the inherited ones, and
        new ones for the others. Raises OSError like `sockets.listen`.
        """
        taken, missing = list[socket.socket](), list[str]()
        for ip in ips:
            sock = self._take(ip, port)
            if sock is None:
                missing.append(ip)
            else:
                taken.append(sock)
        try:
            for sock in taken:
                sock.setblocking(False)
                sock.listen(sockets.BACKLOG)  # it may be refusing connections
            return taken + (self._open(missing, port, taken) if missing else [])
        except OSError:
            sockets.close_all(taken)
            raise

    def close(self) -> None:
        """Close the sockets that have not been taken. Clients in their queues are reset."""
        sockets.close_all(list(self._by_address.values()))
        self._by_address.clear()

    def _take(self, ip: str, port: int) -> socket.socket | None:
        for name in (ip,) if ip else EVERYWHERE:
            sock = self._by_address.pop((name, port), None)
            if sock is not None:
                return sock
        return None

    @staticmethod
    def _open(ips: list[str], port: int, taken: list[socket.socket]) -> list[socket.socket]:
        try:
            return sockets.listen(ips, port)
        except OSError as error:
            if taken and error.errno in sockets.NO_SUCH_FAMILY:
                return []
            raise


def from_systemd(environment: Mapping[str, str]) -> list[socket.socket]:
    """Return the sockets that systemd has passed to this process (LISTEN_FDS); none without socket
    activation. Variables for another process are ignored.
    """
    if environment.get("LISTEN_PID") != str(os.getpid()):
        return []
    text = environment.get("LISTEN_FDS", "")
    count = int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else 0
    found: list[socket.socket] = []
    for fd in range(FIRST_FD, FIRST_FD + count):
        with suppress(OSError):
            os.set_inheritable(fd, False)
            found.append(socket.socket(fileno=fd))
    return found
