"""A tap on the wire: relays TCP connections between two loopback hosts, port for port, and keeps what passed.

Weir listens on 127.0.0.1 and advertises 127.0.0.2, where the tap listens on the same ports: what clients and
brokers say is seen by both, and recorded in between.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.integration.threads import Threads

HOST = "127.0.0.2"
CHUNK_BYTES = 1 << 16


@dataclass
class Conversation:
    requests: bytearray = field(default_factory=bytearray)
    responses: bytearray = field(default_factory=bytearray)


class Tap:
    """Listens on HOST at the given ports and relays to `behind` at the same ports; a context manager."""

    def __init__(self, ports: Iterable[int], behind: str = "127.0.0.1") -> None:
        self.conversations: list[Conversation] = []
        self._behind = behind
        self._listeners = [socket.create_server((HOST, port)) for port in ports]
        self._threads = Threads()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._threads.start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._threads.join()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as ready:
            for listener in self._listeners:
                ready.register(listener, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in ready.select(0.2):
                    assert isinstance(key.fileobj, socket.socket)
                    client, _ = key.fileobj.accept()
                    port = key.fileobj.getsockname()[1]
                    conversation = Conversation()
                    self.conversations.append(conversation)
                    self._threads.start(self._relay, client, port, conversation)
        for listener in self._listeners:
            listener.close()

    def _relay(self, client: socket.socket, port: int, conversation: Conversation) -> None:
        """Until both sides have ended: what is still under way when one of them ends is kept as well."""
        with (
            client,
            socket.create_connection((self._behind, port)) as server,
            selectors.DefaultSelector() as ready,
        ):
            ready.register(client, selectors.EVENT_READ, (server, conversation.requests))
            ready.register(server, selectors.EVENT_READ, (client, conversation.responses))
            while ready.get_map() and not self._ended.is_set():
                for key, _ in ready.select(0.2):
                    assert isinstance(key.fileobj, socket.socket)
                    other, kept = key.data
                    if not _passed_on(key.fileobj, other, kept):
                        ready.unregister(key.fileobj)


def _passed_on(source: socket.socket, other: socket.socket, kept: bytearray) -> bool:
    """Pass on what is there; return False at its end, which the other side is told."""
    data = b""
    with suppress(OSError):
        data = source.recv(CHUNK_BYTES)
    kept += data
    with suppress(OSError):  # it may have gone, and is missed by nobody
        if data:
            other.sendall(data)
        else:
            other.shutdown(socket.SHUT_WR)
    return bool(data)
