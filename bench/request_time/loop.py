"""A closed loop of plain TCP connections: each connection sends its script's next request after the response
to the request before.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from bench.request_time.calls import Call, Script
from bench.request_time.features import Tally
from weir.protocol.framing import LENGTH, LENGTH_BYTES

SILENCE_S: Final = 30.0
_READ_BYTES: Final = 1 << 20
_SOCKET_BYTES: Final = 1 << 20


class LoopError(Exception):
    """Raised if a target closes a connection or does not answer."""


class Loop:
    """Runs scripts (generators of requests), each on a connection of its own, and adds up the requests and
    responses in a `Tally`. Call `close` at the end.
    """

    def __init__(self, address: tuple[str, int], scripts: Iterable[Script], tally: Tally) -> None:
        """Open one connection per script. Raises OSError."""
        self.tally = tally
        self.selector = selectors.DefaultSelector()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self.stopping = False
        self._connections = [Connection(self, address, script) for script in scripts]

    def run(self, seconds: float) -> None:
        """Send requests for `seconds`, then wait for all responses. Raises LoopError, OSError."""
        clock, connections = time.perf_counter, self._connections
        end_s = clock() + seconds
        self.stopping = False
        for connection in connections:
            connection.send()
        while (now_s := clock()) < end_s:
            self._handle(end_s - now_s)
        self.stopping = True
        silent_s = clock() + SILENCE_S
        while any(connection.is_waiting for connection in connections):
            self._handle(1.0)
            if clock() > silent_s:
                raise LoopError(f"the target has not answered for {SILENCE_S:.0f} s")

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()
        self.selector.close()

    def _handle(self, seconds: float) -> None:
        for key, events in self.selector.select(seconds):
            handle: Callable[[int], None] = key.data
            handle(events)


class Connection:
    """One connection of a loop, with at most one request in flight."""

    def __init__(self, loop: Loop, address: tuple[str, int], script: Script) -> None:
        """Open the connection, without sending a request yet. Raises OSError."""
        self._loop, self._script = loop, script
        self._sock = socket.create_connection(address, SILENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BYTES)
        self._sock.setblocking(False)
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._cold = 0.0
        self._call = next(script)
        self.is_waiting = False
        """True while a request is in flight."""
        loop.selector.register(self._sock, selectors.EVENT_READ, self._ready)

    def send(self) -> None:
        """Send the next request."""
        self.is_waiting = True
        self._cold = self._loop.tally.sent(time.perf_counter())
        self._unsent = memoryview(self._call.frame)
        self._send_more()

    def close(self) -> None:
        """Close the script and the socket."""
        self._script.close()
        self._sock.close()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send_more()
        if events & selectors.EVENT_READ:
            self._receive()

    def _send_more(self) -> None:
        had = len(self._unsent)
        with suppress(BlockingIOError):
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if self._unsent:
            self._loop.selector.modify(self._sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready)
        elif had < len(self._call.frame):
            self._loop.selector.modify(self._sock, selectors.EVENT_READ, self._ready)

    def _receive(self) -> None:
        count = self._sock.recv_into(self._loop.buffer)
        if not count:
            raise LoopError(f"the target closed a connection of {self._call.client_id}")
        received = self._received
        received += self._loop.buffer[:count]
        if len(received) >= LENGTH_BYTES:
            size = LENGTH.unpack_from(received)[0]
            if len(received) == LENGTH_BYTES + size:
                self._received = bytearray()
                self._answered(self._call, bytes(received))

    def _answered(self, call: Call, frame: bytes) -> None:
        self._loop.tally.answered(call, self._cold, frame)
        self._call = self._script.send(frame)
        self.is_waiting = False
        if not self._loop.stopping:
            self.send()
