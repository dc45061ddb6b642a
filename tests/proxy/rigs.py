"""A relay between two pairs of loopback sockets, driven by a reactor whose clock the test sets."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.proxy.tls_rigs import secured
from tests.proxy.wire import new_connection
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.net.reactor import Reactor
from weir.proxy.net.relay import Relay
from weir.proxy.net.tls_relay import new_relay
from weir.quotas import QuotaTable

PAUSE_S = 0.01
"""Loopback TCP is not always instantaneous: how long one look waits, at most,"""
PATIENCE = 20
"""and how many looks in which nothing happens mean that nothing will."""

NewPair: TypeAlias = Callable[[], tuple[socket.socket, socket.socket]]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0
        self.extra_us = 0

    def __call__(self) -> int:
        return 1000 * self.now_ms + self.extra_us

    def spend(self, us: int) -> None:
        self.extra_us += us


def open_descriptors() -> set[str]:
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{fd.name} {fd.readlink()}")
    return {entry for entry in found if "socket:" in entry or "anon_inode:" in entry}


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected TCP sockets on the loopback interface; neither blocks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    for sock in (ours, theirs):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


def unix_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets whose small buffers the kernel does not enlarge."""
    pair = socket.socketpair()
    for sock in pair:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return pair


PAIRS: dict[str, NewPair] = {"unix": unix_pair, "tcp": tcp_pair}


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _maybe_secured(pair: tuple[socket.socket, socket.socket], *, tls: bool, server: bool) -> Any:
    return secured(pair, server=server) if tls else pair


class Rig:
    def __init__(
        self,
        table: QuotaTable | None = None,
        *,
        connection: Connection | None = None,
        pair: NewPair = unix_pair,
        broker_pair: NewPair | None = None,
        tls: tuple[str, ...] = (),
    ) -> None:
        """Connect it; `tls` names the sides that are: client, broker."""
        self.clock = Clock()
        self.reactor = Reactor(self.clock)
        self.connection = connection or new_connection(table)
        self.connection.clock = self.reactor.clock
        self.client, relay_client = _maybe_secured(pair(), tls="client" in tls, server=True)
        self.broker, relay_broker = _maybe_secured((broker_pair or pair)(), tls="broker" in tls, server=False)
        self.ends: list[tuple[CloseReason, str]] = []
        self.relay = new_relay(self.reactor, relay_client, relay_broker, self.connection, self._ended)

    def _ended(self, _relay: Relay, reason: CloseReason, detail: str) -> None:
        self.ends.append((reason, detail))

    @property
    def reason(self) -> CloseReason | None:
        assert len(self.ends) <= 1
        return self.ends[0][0] if self.ends else None

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.reactor.turn(0)

    def until(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms
        self.turn(4)

    def send(self, sock: socket.socket, data: bytes) -> bytes:
        with contextlib.suppress(BlockingIOError):
            data = data[sock.send(data) :]
        return data

    def take(self, sock: socket.socket) -> bytes:
        """Receive what is there; nothing if there is nothing, or at the end."""
        received = bytearray()
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while part := sock.recv(1 << 20):
                received += part
        return bytes(received)

    def pass_on(self, data: bytes, source: socket.socket, sink: socket.socket) -> bytes:
        """Send all of this through the relay; return what arrives at the other side: as much, or all there is
        when nothing moves any more.
        """
        received, idle, expected = bytearray(), 0, len(data)
        while idle < PATIENCE and (data or len(received) < expected):
            before = len(data)
            data = self.send(source, data) if data and not self.ends else data
            self.reactor.turn(PAUSE_S if idle else 0)
            part = self.take(sink)
            received += part
            idle = 0 if part or len(data) != before else idle + 1
        while part := self._more(sink):  # of what was under way before
            received += part
        return bytes(received)

    def _more(self, sink: socket.socket) -> bytes:
        self.turn()
        return self.take(sink)

    def expect(self, sock: socket.socket, data: bytes) -> None:
        received, idle = bytearray(), 0
        while idle < PATIENCE and len(received) < len(data):
            part = self.take(sock)
            received += part
            idle = 0 if part else idle + 1
            self.reactor.turn(PAUSE_S if idle else 0)
        self.turn()
        received += self.take(sock)
        assert len(received) == len(data)
        assert received == data

    def end(self) -> CloseReason | None:
        """Wait until the relay ends; return why, or None if it does not."""
        for _ in range(PATIENCE):
            if self.ends:
                break
            self.reactor.turn(PAUSE_S)
        return self.reason

    def close(self) -> None:
        self.relay.close(CloseReason.STOPPED)
        if self.relay.lingering is not None:
            self.relay.lingering.close()
        self.reactor.close()
        self.client.close()
        self.broker.close()

    def at_end(self, sock: socket.socket) -> bool:
        """Whether the far end sees that the connection is closed, with nothing left to read."""
        sock.settimeout(1)
        try:
            return sock.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True
