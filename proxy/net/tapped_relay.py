"""A relay that shows the bytes which it reads to a tap, before anything else handles them.

Plain relays have no such code: the tap replaces the function that reads a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import OnEnd, Relay
from weir.proxy.net.side import Socket
from weir.proxy.net.tls_relay import TlsRelay


class Tap(Protocol):
    """An object that gets the bytes of one connection. Its methods must return at once."""

    def sent(self, data: memoryview, *, by_client: bool) -> None:
        """Take bytes that the client, or the broker, has sent. They are valid only during the call."""

    def ended(self, *, by_client: bool) -> None:
        """Note that no more bytes of the client, or of the broker, are read; may be called several times."""


NewRelay: TypeAlias = Callable[[Reactor, Socket, Socket, Connection, OnEnd], Relay]
"""Function (reactor, client's socket, broker's socket, connection, on_end) that starts a relay."""


class TappedRelay(TlsRelay):
    """A relay with a tap; its sockets may be plain or TlsSockets. A tap sees decrypted bytes."""

    __slots__ = ("_tap",)

    def __init__(
        self,
        reactor: Reactor,
        client: Socket,
        broker: Socket,
        connection: Connection,
        on_end: OnEnd,
        tap: Tap,
    ) -> None:
        """Take over both sockets, and show their bytes to `tap`."""
        super().__init__(reactor, client, broker, connection, on_end)
        self._tap = tap
        self._splices = False  # spliced bytes are not seen
        self._client.recv_into = _shown(self._client.recv_into, tap, by_client=True)
        self._broker.recv_into = _shown(self._broker.recv_into, tap, by_client=False)

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Close both sockets and report the end, once, also to the tap."""
        self._tap.ended(by_client=True)
        self._tap.ended(by_client=False)
        super().close(reason, detail)


class _Read(Protocol):
    def __call__(self, buffer: memoryview, nbytes: int = 0, /) -> int: ...


def _shown(recv_into: _Read, tap: Tap, *, by_client: bool) -> _Read:
    """Return a function that reads like `recv_into` and shows the bytes to the tap."""

    def read(buffer: memoryview, nbytes: int = 0, /) -> int:
        count = recv_into(buffer, nbytes)
        if count:
            tap.sent(buffer[:count], by_client=by_client)
        else:
            tap.ended(by_client=by_client)
        return count

    return read
