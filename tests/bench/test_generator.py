"""The load generator, against a server that answers each request with eight bytes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.generator import Load, LoadError, Splitter, measure
from protocol.heads import LENGTH

FRAME = LENGTH.pack(6) + b"abcdef"
ANSWER = LENGTH.pack(4) + b"wxyz"
STREAM = b"".join(LENGTH.pack(size) + bytes(size) for size in (4, 0, 1, 300))


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 8, 100, 1000])
def test_frames_are_counted_however_they_arrive(chunk: int) -> None:
    splitter, ended = Splitter(), 0
    for start in range(0, len(STREAM), chunk):
        data = bytearray(splitter.kept + STREAM[start : start + chunk])
        ended += splitter.ends(data, len(data))
    assert ended == 4
    assert splitter.kept == b""


@contextmanager
def server(answers: int) -> Iterator[int]:
    """A port; each connection there gets so many answers, then it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            for _ in range(answers):
                if requests.read(len(FRAME)) != FRAME:
                    return
                connection.sendall(ANSWER)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (3, 4)])
def test_requests_are_answered_counted_and_timed(connections: int, depth: int) -> None:
    with server(answers=10**9) as port:
        load = Load("127.0.0.1", port, connections, depth, warm_up_s=0.01, seconds=0.1, pid=os.getpid())
        measured = measure(load, FRAME)
    assert measured.requests > connections * depth
    assert 0 < measured.p50_us <= measured.p99_us
    assert measured.cpu_us is not None
    assert measured.cpu_us > 0
    assert measured.requests_per_s == pytest.approx(measured.requests / measured.seconds)


def test_a_closed_connection_fails_the_run() -> None:
    with server(answers=3) as port, pytest.raises((LoadError, ConnectionResetError)):
        measure(Load("127.0.0.1", port, 1, 1, warm_up_s=0.0, seconds=30.0, pid=None), FRAME)
