"""Weir between stand-in brokers and raw sockets, and what is measured of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Self

from tests.hostile.files import resident_bytes
from tests.integration.descriptors import open_count
from tests.integration.weir import Weir
from tests.kafka.settings import HOST
from tests.wire.frames import request, response
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse

PATIENCE_S: Final = 60
"""No wait takes so long, unless something is broken."""
LATENCY_S: Final = 20
"""A neighbour's answer takes some 100 us, and one that starves gets none; a busy machine made it wait 5 s."""
PING, PONG = request(HeartbeatRequest(), 4), response(HeartbeatResponse(), 4)


class Stage:
    """A running Weir, and what it was like before anything hostile came."""

    def __init__(self, weir: Weir) -> None:
        """Serve one client, so that what is made once is made, then measure."""
        self.weir = weir
        self.descriptors = 0
        self._clients: set[str] = set()
        """Their addresses: whoever else looks whether Weir is there does not count."""
        self._log_starts = len(weir.log)  # a port may be used again
        with self.connect() as sock:
            assert ask(sock, PING) == PONG
        self.until(lambda: self.ended().total() == 1, "the first client's session ends")
        self.descriptors = open_count(weir.pid)
        self.resident_bytes = resident_bytes(weir.pid)
        self._clients.clear()
        self._log_starts = len(weir.log)  # a port may be used again

    def connect(self, node_id: int = 0) -> socket.socket:
        sock = socket.create_connection((HOST, self.weir.port + 1 + node_id), PATIENCE_S)
        self.count(sock)
        return sock

    def count(self, sock: socket.socket) -> None:
        host, port = sock.getsockname()
        self._clients.add(f"{host}:{port}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(
            condition,
            lambda: (
                f"{what}; ended: {self.ended()}, descriptors: {open_count(self.weir.pid)}, "
                f"at first {self.descriptors}"
            ),
        )

    def ended(self) -> Counter[str]:
        """How many of the stage's clients have been closed for which reason, by the log."""
        ended: Counter[str] = Counter()
        whole_lines = self.weir.log[self._log_starts :].rpartition("\n")[
            0
        ]  # the last one may be being written
        for line in whole_lines.splitlines():
            if '"reason"' in line and line.startswith("{"):
                entry = json.loads(line)
                if entry.get("client") in self._clients:
                    ended[entry["reason"]] += entry.get("count", 1)
        return ended

    def grown_bytes(self) -> int:
        return resident_bytes(self.weir.pid) - self.resident_bytes

    def all_closed(self, expected: dict[str, int]) -> None:
        """Every connection ended for the reason expected, and none of their descriptors is left."""
        total = sum(expected.values())
        self.until(lambda: self.ended().total() >= total, f"{total} connections have ended")
        assert self.ended() == expected, f"ended: {self.ended()}, expected: {expected}"
        self.until(lambda: open_count(self.weir.pid) <= self.descriptors, "every descriptor is closed again")


class Neighbour:
    """A well-behaved client that works all the while; a context manager."""

    def __init__(self, stage: Stage) -> None:
        self._sock = stage.connect()
        self._sock.settimeout(LATENCY_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="neighbour")
        self._failure: Exception | None = None
        self._stage = stage
        self.answers = 0

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                assert ask(self._sock, PING) == PONG
                self.answers += 1
        except Exception as error:  # noqa: BLE001  # told at the end, in the test's own thread
            self._failure = error

    def more(self, answers: int) -> None:
        """Wait until it had so many more answers: a clock of what Weir does besides."""
        goal = self.answers + answers
        self._stage.until(lambda: self.answers >= goal or self._failure is not None, "a neighbour is served")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sock.close()
        assert self._failure is None, f"a well-behaved client suffered: {self._failure!r}"
        assert self.answers > 0


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait for what cannot be waited for otherwise. Raises AssertionError that says what did not happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what()}"
        time.sleep(0.02)  # between looks


def ask(sock: socket.socket, frame: bytes) -> bytes:
    """Send a request and return its response; what has come of it if the connection ends before."""
    sock.sendall(frame)
    return receive(sock)


def receive(sock: socket.socket) -> bytes:
    head = sock.recv(4, socket.MSG_WAITALL)
    return head + sock.recv(int.from_bytes(head), socket.MSG_WAITALL) if len(head) == 4 else head


def at_end(sock: socket.socket) -> bool:
    """Wait for the connection's end; whatever comes before is thrown away."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True
