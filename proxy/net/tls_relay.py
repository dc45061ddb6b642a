"""A relay of which one side is TLS, or both: it reads on where no poll would say so.

A poll reports what the kernel holds. What the TLS library has decrypted already (the rest of a record that
was read in part: before a throttle, or because the buffer was full) would wait until the peer sends more. So
after everything that happens to such a relay, it is asked whether something waits, and read again in the
reactor's next turn. A plain relay knows nothing of this.
"""

from __future__ import annotations

from proxy.connection.connection import Connection
from proxy.net.poll import READ, WRITE
from proxy.net.reactor import Reactor, Timer
from proxy.net.relay import OnEnd, Relay
from proxy.net.side import Side, Socket
from proxy.net.tls_socket import TlsSocket


class TlsRelay(Relay):
    """See the module."""

    __slots__ = ("_again", "_tls_sides")

    def __init__(
        self, reactor: Reactor, client: Socket, broker: Socket, connection: Connection, on_end: OnEnd
    ) -> None:
        """Take over both sockets, as a relay does; those that are TLS must be TlsSockets."""
        super().__init__(reactor, client, broker, connection, on_end)
        self._again: Timer | None = None
        self._tls_sides = [
            (side, side.sock) for side in (self._client, self._broker) if isinstance(side.sock, TlsSocket)
        ]

    def _client_ready(self, events: int) -> None:
        super()._client_ready(self._unstalled(self._client, events))
        self._look_again()

    def _broker_ready(self, events: int) -> None:
        super()._broker_ready(self._unstalled(self._broker, events))
        self._look_again()

    def _obey(self) -> None:
        super()._obey()
        self._look_again()

    def _look_again(self) -> None:
        """Have what waits in the library read in the next turn, if it may be read at all."""
        if self._closed:
            return
        for side, sock in self._tls_sides:
            if sock.wants_write:
                self._stall(side)
            elif self._again is None and side.interest & READ and sock.waiting():
                self._again = self._reactor.call_at(self._reactor.now_ms, self._read_on)

    def _read_on(self) -> None:
        self._again = None
        for side, sock in self._tls_sides:
            if not self._closed and side.interest & READ and sock.waiting():
                if side is self._client:
                    self._client_ready(READ)
                else:
                    self._broker_ready(READ)

    def _stall(self, side: Side) -> None:
        """Reading needs room to send first: wait for that alone, for data in the kernel would wake us for
        ever.
        """
        self._calm = False
        if side.interest != WRITE:
            side.interest = WRITE
            self._reactor.modify(side.fd, WRITE)

    def _unstalled(self, side: Side, events: int) -> int:
        """Return the events to act on: room to send may be what reading has waited for."""
        for tls_side, sock in self._tls_sides:
            if tls_side is side and sock.wants_write and events & WRITE:
                sock.wants_write = False
                if not side.unsent:
                    self._set_interest(side, read=True)
                    return events | READ
        return events


def new_relay(
    reactor: Reactor, client: Socket, broker: Socket, connection: Connection, on_end: OnEnd
) -> Relay:
    """Start the relay that these sockets need."""
    if isinstance(client, TlsSocket) or isinstance(broker, TlsSocket):
        return TlsRelay(reactor, client, broker, connection, on_end)
    return Relay(reactor, client, broker, connection, on_end)
