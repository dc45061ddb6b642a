"""Listeners: the listening sockets of one Weir. Workers accept clients from copies of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from itertools import chain

from weir.proxy.net import sockets
from weir.proxy.net.inherited import Inherited
from weir.proxy.net.own_listeners import OwnListeners
from weir.proxy.server.target import Target


class Listeners:
    """All listening sockets of one Weir."""

    def __init__(self, own_listeners: OwnListeners, inherited: Inherited | None = None) -> None:
        """Begin without listeners. `inherited`: sockets to use for the addresses that they are bound to.
        Record all sockets in `own_listeners`.
        """
        self.on_open: list[Callable[[Target, Sequence[socket.socket]], None]] = []
        """Functions to call with the sockets of each new listener."""
        self._own_listeners = own_listeners
        self._inherited = inherited or Inherited()
        self.sockets: dict[Target, list[socket.socket]] = {}
        """Sockets of each listener."""

    def open(self, ips: Sequence[str], port: int, target: Target) -> None:
        """Open a listener, whose connections go to `target`: the kernel accepts connections at these IP
        addresses from now on. May be called within a turn of the reactor. Raises OSError.
        """
        listening = self._inherited.listen(ips, port)
        self.sockets[target] = listening
        self._own_listeners.add(sock.getsockname()[:2] for sock in listening)
        for call in self.on_open:
            call(target, listening)

    @property
    def all_sockets(self) -> list[socket.socket]:
        return list(chain.from_iterable(self.sockets.values()))

    def close(self) -> None:
        """Close every listening socket."""
        sockets.close_all(self.all_sockets)
