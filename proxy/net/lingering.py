"""Close a connection in such a way that its peer receives all bytes that were sent.

The kernel resets a connection that is closed while bytes from the peer are unread, and drops bytes to the
peer that are still on their way. So only the sending half is closed at first. The peer's bytes are read and
discarded until the peer closes too, or for `DISCARD_MS`.
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable
from contextlib import suppress
from fcntl import ioctl
from termios import FIONREAD
from typing import Final

from weir.proxy.net.poll import READ
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.side import Socket

DISCARD_MS: Final = 1000


class Lingering:
    """A connection whose sending half is closed. It stays registered with a reactor until it is closed."""

    __slots__ = ("_fd", "_reactor", "_sock", "_timer", "on_close")

    def __init__(self, reactor: Reactor, sock: Socket) -> None:
        """Register a socket with the reactor, which must not have registered the socket before, and discard
        the peer's bytes.
        """
        self.on_close: Callable[[], None] | None = None
        """Function to call once the socket is closed; None for no call."""
        self._reactor = reactor
        self._sock = sock
        self._fd = sock.fileno()
        reactor.register(self._fd, READ, self._discard, self._failed)
        self._timer = reactor.call_at(reactor.now_ms + DISCARD_MS, self.close)

    def close(self) -> None:
        """Close the socket. Further calls have no effect."""
        if self._fd < 0:
            return
        self._reactor.unregister(self._fd)
        self._fd = -1
        self._timer.cancel()
        self._sock.close()
        if self.on_close is not None:
            self.on_close()

    def _discard(self, _events: int) -> None:
        try:
            if not self._sock.recv_into(self._reactor.view):
                self.close()
        except BlockingIOError:  # no longer ready
            return
        except OSError:
            self.close()

    def _failed(self, _error: Exception) -> None:
        self.close()


def close_slowly(reactor: Reactor, sock: Socket) -> Lingering | None:
    """Close the sending half of a socket that is not registered with the reactor, and return the lingering
    connection; None if the connection was closed already.
    """
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        sock.close()
        return None
    return Lingering(reactor, sock)


def unread_bytes(fd: int) -> int:
    """Return the number of bytes from the peer that this socket has received and nobody has read; 0 if the
    socket is closed.
    """
    found = array("i", [0])
    with suppress(OSError):
        ioctl(fd, FIONREAD, found)
    return found[0]
