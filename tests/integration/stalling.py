"""A TCP relay in front of a broker that can stop passing the bytes of some clients: their network is cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tests.integration.threads import Threads

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 1 << 16
CLIENT_ID_AT: Final = 12
"""Position of the length of the client-id in a request: behind size, API key, version and correlation id."""


class StallingRelay:
    """Listens on HOST at `port` and relays to `behind`; a context manager. Connections whose first request
    has the client-id `client_id` can be stopped: nothing is closed, and no byte passes until they go on.
    """

    def __init__(self, port: int, behind: int, client_id: str) -> None:
        self._listener = socket.create_server((HOST, port))
        self._behind = behind
        self._client_id = client_id.encode()
        self._passing = threading.Event()
        self._passing.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads = Threads()
        self.stopped = 0
        """Number of chunks that had to wait."""

    def stop(self) -> None:
        self._passing.clear()

    def go_on(self) -> None:
        self._passing.set()

    def __enter__(self) -> Self:
        self._threads.start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on()
        with self._lock:
            for sock in (self._listener, *self._open):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self._threads.join()
        for sock in (self._listener, *self._open):
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the end
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((HOST, self._behind))
                with self._lock:
                    self._open += [client, broker]
                self._threads.start(self._relay, client, broker)

    def _relay(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError):
            first = client.recv(CHUNK_BYTES)
            end = CLIENT_ID_AT + 2 + len(self._client_id)
            chosen = first[CLIENT_ID_AT + 2 : end] == self._client_id
            self._threads.start(self._pass, broker, client, chosen)
            self._send(broker, first, chosen=chosen)
            self._pass(client, broker, chosen)

    def _pass(self, source: socket.socket, target: socket.socket, chosen: bool) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._send(target, data, chosen=chosen)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _send(self, target: socket.socket, data: bytes, *, chosen: bool) -> None:
        if chosen and not self._passing.is_set():
            self.stopped += 1
            self._passing.wait()
        target.sendall(data)
