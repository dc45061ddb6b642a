"""Clients that try to get more than their quota, and how much of that they get.

Each runs twice at the same time: under a broker's own quota, and under Weir's in front of that broker.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from weir.protocol.framing import LENGTH, LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.wire.connection import Address

READ_BYTES: Final = 1 << 18


@dataclass(frozen=True)
class Manner:
    """How a client goes about it. It never waits for a throttle time that it was told."""

    connections: int = 1
    reconnects: bool = False
    """True for a new connection for each request."""
    answered: bool = True
    """False for acks=0: a connection that is made anew then closes without waiting."""
    depth: int = 1000
    """Requests under way on a connection."""
    pause_s: float = 0.0
    """Time from the end of a connection to the next one."""
    source: str = ""
    """Address to connect from."""


@dataclass
class Client:
    """Sends requests as fast as it may; counts what `count` makes of each response frame."""

    name: str
    address: Address
    frames: Iterator[bytes]
    manner: Manner
    count: Callable[[bytes], int] = lambda _frame: 1
    got: list[tuple[float, int]] = field(default_factory=list)
    """(time since the start in s, result of `count`) of each response."""
    connected: int = 0

    def total(self, until_s: float) -> int:
        """Return the sum of the counts until then."""
        return sum(units for at_s, units in self.got if at_s <= until_s)


class _Connection:
    """One connection of a client, or one after another."""

    def __init__(self, client: Client, selector: selectors.BaseSelector, began: float) -> None:
        self._client, self._selector, self._began = client, selector, began
        self._sock: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._under_way = 0
        self.due = 0.0
        """Time to connect; only while not connected."""

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def connect(self) -> None:
        """Connect without waiting for the end."""
        sock = self._sock = socket.socket()
        sock.setblocking(False)
        if self._client.manner.source:
            sock.bind((self._client.manner.source, 0))
        sock.connect_ex(self._client.address)
        self._unsent, self._under_way = memoryview(b""), 0
        self._received.clear()
        self._client.connected += 1
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def close(self) -> None:
        """Close, to connect again after the client's pause."""
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
            self.due = time.monotonic() + self._client.manner.pause_s

    def ready(self, events: int) -> None:
        """Receive and send what goes."""
        try:
            if events & selectors.EVENT_READ:
                self._receive()
            if events & selectors.EVENT_WRITE and self._sock is not None:
                self._send(self._sock)
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def _receive(self) -> None:
        assert self._sock is not None
        data = self._sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError
        received, manner = self._received, self._client.manner
        received += data
        at_s, position = time.monotonic() - self._began, 0
        while len(received) - position >= LENGTH_BYTES:
            stop = position + LENGTH_BYTES + LENGTH.unpack_from(received, position)[0]
            if stop > len(received):
                break
            self._client.got.append((at_s, self._client.count(bytes(received[position:stop]))))
            position = stop
            self._under_way -= 1
        del received[:position]
        if position and manner.reconnects:
            self.close()
        elif position:
            self._want(write=True)

    def _send(self, sock: socket.socket) -> None:
        manner = self._client.manner
        if not self._unsent:
            if self._under_way >= (1 if manner.reconnects else manner.depth):
                self._want(write=False)
                return
            self._unsent = memoryview(next(self._client.frames))
            self._under_way += manner.answered
        self._unsent = self._unsent[sock.send(self._unsent) :]
        if not self._unsent and manner.reconnects and not manner.answered:
            self.close()

    def _want(self, *, write: bool) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        assert self._sock is not None
        self._selector.modify(self._sock, events, self)


def attempt(clients: Sequence[Client], seconds: float, at_end: Callable[[], None] = lambda: None) -> None:
    """Run all clients at once for so long; call `at_end` before their connections are closed."""
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        connections = [
            _Connection(client, selector, began)
            for client in clients
            for _ in range(client.manner.connections)
        ]
        while (now := time.monotonic()) < began + seconds:
            closed = [each for each in connections if not each.is_open]
            for connection in closed:
                if connection.due <= now:
                    with suppress(OSError):
                        connection.connect()
            for key, events in selector.select(0.02 if closed else 0.1):
                key.data.ready(events)
        at_end()
        for connection in connections:
            connection.close()
