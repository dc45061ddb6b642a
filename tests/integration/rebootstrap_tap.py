"""A tap between clients and a Weir: it can tell clients to bootstrap again (KIP-1102).

Weir listens on 127.0.0.1 and advertises 127.0.0.2, where the tap listens on the same ports.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Final, Self

from tests.integration.tap import HOST
from tests.wire.frames import Head, head_of, response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import MetadataResponse

VERSION_MIN: Final = 13
"""The first version of Metadata whose response has an error code."""
BEHIND: Final = "127.0.0.1"


class RebootstrapTap:
    """Relays frames; a context manager."""

    def __init__(self, ports: Iterable[int], delay_s: float) -> None:
        """`delay_s` is the latency of each response, so that requests are in flight."""
        self.delay_s = delay_s
        self.telling = False
        """True while Metadata responses are replaced by REBOOTSTRAP_REQUIRED."""
        self.told = 0
        """Number of replaced responses."""
        self.told_in_flight: list[int] = []
        """Number of Produce requests without a response, over all connections, at each replaced response."""
        self.produced = 0
        """Number of Produce requests."""
        self._in_flight = 0
        self._lock = threading.Lock()
        self._listeners = [socket.create_server((HOST, port)) for port in ports]

    def __enter__(self) -> Self:
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Close the listeners: the kernel refuses further clients. Open connections stay."""
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((BEHIND, port), 30)
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Relayed(self, client, server).start()

    def note_sent(self, head: Head) -> None:
        if head.api_key == ApiKey.PRODUCE:
            with self._lock:
                self.produced += 1
                self._in_flight += 1

    def answered(self, head: Head, frame: bytes) -> bytes:
        with self._lock:
            if head.api_key == ApiKey.PRODUCE:
                self._in_flight -= 1
            elif head.api_key == ApiKey.METADATA and head.version >= VERSION_MIN and self.telling:
                self.told += 1
                self.told_in_flight.append(self._in_flight)
                told = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
                return response(told, head.version, head.correlation_id)
        return frame

    def lost(self, heads: Iterable[Head]) -> None:
        with self._lock:
            self._in_flight -= sum(head.api_key == ApiKey.PRODUCE for head in heads)


class _Relayed:
    def __init__(self, tap: RebootstrapTap, client: socket.socket, server: socket.socket) -> None:
        self._tap = tap
        self._client, self._server = client, server
        self._heads: dict[int, Head] = {}
        self._arrived: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()
        """Responses, each with the monotonic time (s) at which the client gets it; None at the end."""

    def start(self) -> None:
        for work in (self._requests, self._responses, self._deliver):
            threading.Thread(target=work, daemon=True).start()

    def _requests(self) -> None:
        with self._client.makefile("rb") as stream, suppress(OSError):
            while frame := _frame(stream):
                head = head_of(frame)
                self._heads[head.correlation_id] = head
                self._tap.note_sent(head)
                self._server.sendall(frame)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_WR)

    def _responses(self) -> None:
        with self._server.makefile("rb") as stream, suppress(OSError):
            while frame := _frame(stream):
                self._arrived.put((time.monotonic() + self._tap.delay_s, frame))
        self._arrived.put(None)

    def _deliver(self) -> None:
        with suppress(OSError):
            while (arrived := self._arrived.get()) is not None:
                due_s, frame = arrived
                time.sleep(max(due_s - time.monotonic(), 0))  # the latency
                head = self._heads.pop(struct.unpack_from(">i", frame, 4)[0])
                self._client.sendall(self._tap.answered(head, frame))
        self._tap.lost(self._heads.values())
        for sock in (self._client, self._server):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def _frame(stream: BinaryIO) -> bytes:
    """Return the next frame; empty at the end."""
    head = stream.read(4)
    return head + stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else b""
