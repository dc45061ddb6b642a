"""Clients that send one request again and again over plain sockets, and note every answer.

An *obedient* one waits out the throttle time that it is told before it sends again, as clients do since
KIP-219. A *rude* one ignores it and keeps several requests under way. All are driven by one loop, so that
many at once cost little.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.raw.requests import Request
from tests.wire.connection import Address
from weir.protocol.framing import LENGTH, LENGTH_BYTES

CONNECT_S: Final = 10.0
_READ_BYTES: Final = 1 << 18


class RawClientError(Exception):
    """A client's connection ended, or what it read was not an answer."""


class Answer(NamedTuple):
    """One response, when its last byte was here."""

    at_s: float
    """Since `drive` began."""
    charged_bytes: int
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Behaviour:
    obeys: bool = True
    """Wait out announced throttle times."""
    depth: int = 1
    """Requests under way on a connection."""
    connections: int = 1
    reconnects: bool = False
    """A new connection for each request."""
    pause_s: float = 0.0
    """From an answer to the next request; one that reconnects would else do nothing but connect."""
    answered: bool = True
    """False for acks=0: who reconnects then closes without waiting."""
    persists: bool = False
    """Connect again when the other side has closed the connection; else that is an error."""
    source: str = ""
    """Address to connect from."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A limit of the client's own: `bytes_per_s`, from the start until `until_s`."""

    bytes_per_s: float
    until_s: float
    request_bytes: int


class RawClient:
    """Sends `request` to `address` as `behaviour` says; `drive` runs it."""

    def __init__(
        self,
        name: str,
        address: Address,
        request: Request,
        behaviour: Behaviour,
        pace: Pace | None = None,
        begins_s: float = 0.0,
        enter: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """`enter` logs in on a new connection."""
        self.name = name
        self.address = address
        self.request = request
        self.behaviour = behaviour
        self.enter = enter
        self.answers: list[Answer] = []
        """In the order in which they came."""
        self._pace = pace
        self._begins_s = begins_s
        self._sent = 0

    def send_from_s(self) -> float:
        if self._pace is None:
            return self._begins_s
        at_s = self._sent * self._pace.request_bytes / self._pace.bytes_per_s
        return max(self._begins_s, min(at_s, self._pace.until_s))

    def frame(self) -> bytes:
        return self.request.frame

    def sent(self) -> None:
        self._sent += 1

    def note(self, at_s: float, frame: bytes) -> Answer:
        """Keep and return what a response came to. Raises RequestError, ProtocolError."""
        answer = Answer(at_s, *self.request.outcome(frame))
        self.answers.append(answer)
        return answer


def drive(clients: Sequence[RawClient], seconds: float, at_end: Callable[[], None] = lambda: None) -> None:
    """Run all clients at once for this long; call `at_end` before their connections are closed. Raises
    RawClientError, OSError and what `note` raises.
    """
    began = time.monotonic()

    def clock() -> float:
        return time.monotonic() - began

    with selectors.DefaultSelector() as selector:
        connections = [
            _Connection(client, selector, clock)
            for client in clients
            for _ in range(client.behaviour.connections)
        ]
        try:
            while (now_s := clock()) < seconds:
                for connection in connections:
                    if connection.due_s <= now_s:
                        connection.ready(0)
                due_s = min(seconds, *(connection.due_s for connection in connections))
                for key, events in selector.select(max(0.0, due_s - clock())):
                    key.data.ready(events)
            at_end()
        finally:
            for connection in connections:
                connection.close()


class _Connection:
    """One of a client's connections, or one after another if it reconnects."""

    def __init__(
        self, client: RawClient, selector: selectors.BaseSelector, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._selector = selector
        self._clock = clock
        self._sock: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._unanswered = 0
        self._received = bytearray()
        self._send_from_s = 0.0
        self.due_s = 0.0
        """When to call `ready` though the socket is not; infinity if only readiness will tell."""

    def _send(self) -> None:
        client = self._client
        self.due_s = math.inf
        while self._unanswered < client.behaviour.depth and not self._unsent:
            from_s = max(self._send_from_s, client.send_from_s())
            if from_s > self._clock():
                self.due_s = from_s
                return
            self._sock = self._sock or self._connect()
            self._unsent = memoryview(client.frame())
            self._unanswered += client.behaviour.answered
            client.sent()
            self._send_more(self._sock)
            if not client.behaviour.answered:  # no answer limits it: others have their turns
                self.due_s = math.inf if self._unsent else self._send_from_s
                return

    def ready(self, events: int) -> None:
        """Read and send as these events of the socket allow; without any, send the next request."""
        sock = self._sock
        try:
            if not events:
                self._send()
            elif sock is not None:
                self.due_s = 0.0
                if events & selectors.EVENT_READ:
                    self._read(sock)
                if events & selectors.EVENT_WRITE and self._sock is not None:
                    self._send_more(sock)
        except (OSError, RawClientError):
            if not self._client.behaviour.persists:
                raise
            self.due_s = 0.0
            self._pause()

    def close(self) -> None:
        if self._sock is not None:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
        self._unsent, self._unanswered = memoryview(b""), 0
        self._received.clear()

    def _pause(self) -> None:
        self.close()
        self._send_from_s = max(self._send_from_s, self._clock() + self._client.behaviour.pause_s)

    def _connect(self) -> socket.socket:
        client = self._client
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if client.behaviour.source:
            sock.bind((client.behaviour.source, 0))
        if client.enter is None:  # a server that does not accept keeps only this client waiting
            sock.setblocking(False)
            sock.connect_ex(client.address)
        else:
            sock.settimeout(CONNECT_S)
            try:
                sock.connect(client.address)
                client.enter(sock)
            except BaseException:
                sock.close()
                raise
            sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, self)
        return sock

    def _send_more(self, sock: socket.socket) -> None:
        with suppress(BlockingIOError):
            self._unsent = self._unsent[sock.send(self._unsent) :]
        behaviour = self._client.behaviour
        if not (self._unsent or behaviour.answered) and behaviour.reconnects:
            self._pause()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self._selector.get_key(sock).events != wanted:
            self._selector.modify(sock, wanted, self)

    def _read(self, sock: socket.socket) -> None:
        data = sock.recv(_READ_BYTES)
        if not data:
            raise RawClientError(f"{self._client.name}: closed with {self._unanswered} requests unanswered")
        self._received += data
        while (end := _frame_end(self._received)) <= len(self._received):
            frame = bytes(self._received[:end])
            del self._received[:end]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        behaviour, now_s = self._client.behaviour, self._clock()
        self._unanswered -= 1
        answer = self._client.note(now_s, frame)
        wait_s = answer.throttle_ms / 1000 if behaviour.obeys else 0.0
        self._send_from_s = max(self._send_from_s, now_s + max(wait_s, behaviour.pause_s))
        if behaviour.reconnects:
            self.close()


def _frame_end(data: bytearray) -> int:
    if len(data) < LENGTH_BYTES:
        return LENGTH_BYTES
    end: int = LENGTH_BYTES + LENGTH.unpack_from(data)[0]
    return end
