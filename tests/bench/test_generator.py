"""The load generator, against a server that answers each request with eight bytes."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench import certificate
from bench.entry import CIPHER, Entry, EntryError
from bench.generator import Ring, Splitter, measure
from bench.load import Load, LoadError, Order, generate
from weir.protocol.framing import LENGTH

FRAME = LENGTH.pack(6) + b"abcdef"
ANSWER = LENGTH.pack(4) + b"wxyz"
STREAM = b"".join(LENGTH.pack(size) + bytes(size) for size in (4, 0, 1, 300))


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 7, 8, 100, 1000])
def test_the_load_generator_counts_frames_in_chunks_of_any_size(chunk: int) -> None:
    splitter, ended = Splitter(), 0
    for start in range(0, len(STREAM), chunk):
        data = bytearray(splitter.kept + STREAM[start : start + chunk])
        ended += splitter.ends(data, len(data))
    assert ended == 4
    assert splitter.kept == b""


@contextmanager
def server(answers: int, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port; each connection there gets so many answers, then it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    if tls is not None:
        listener = tls.wrap_socket(listener, server_side=True)

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
            except ssl.SSLError:
                continue  # somebody who did not like our TLS
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(("frames", "depth"), [(1, 1), (1, 5), (3, 1), (3, 2), (3, 7)])
def test_a_ring_repeats_its_frames_in_turn_without_end(frames: int, depth: int) -> None:
    made = [f"frame{number}".encode() for number in range(frames)]
    ring = Ring(b"".join(made), frames, depth)
    for start in range(frames):
        for count in range(depth + 1):
            wanted = b"".join(made[(start + index) % frames] for index in range(count))
            assert bytes(ring.take(start, count)) == wanted


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("connections", "depth"), [(2, 1), (3, 4)])
def test_requests_are_answered_counted_and_timed(connections: int, depth: int, processes: int) -> None:
    with server(answers=10**9) as port:
        load = Load("127.0.0.1", port, connections, depth, warm_up_s=0.01, seconds=0.2, pid=os.getpid())
        measured = generate(load, [FRAME], processes)
    assert measured.requests > connections * depth
    assert 0 < measured.p50_us <= measured.p99_us
    assert measured.cpu_us is not None
    assert measured.cpu_us > 0
    assert measured.rss_bytes is not None
    assert measured.rss_bytes > 0
    assert measured.generator_busy > 0
    assert measured.requests_per_s == pytest.approx(measured.requests / measured.seconds)


def test_a_closed_connection_fails_the_run() -> None:
    load = Load("127.0.0.1", 0, 1, 1, warm_up_s=0.0, seconds=30.0, pid=None)
    with server(answers=3) as port, pytest.raises((LoadError, ConnectionResetError)):
        measure(Order(replace(load, port=port), 1, begin_s=0.0), FRAME)


def test_a_failure_in_the_load_generators_process_is_raised() -> None:
    with server(answers=3) as port, pytest.raises(LoadError, match=r"closed a connection|reset by peer"):
        generate(Load("127.0.0.1", port, 1, 1, warm_up_s=0.0, seconds=30.0, pid=None), [FRAME])


def tls_server(directory: Path) -> tuple[ssl.SSLContext, Entry]:
    made = certificate.make(directory / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.both)
    return context, Entry(ca=str(made.ca))


def test_requests_go_through_tls_with_the_cipher_for_all(tmp_path: Path) -> None:
    """The server would rather have another."""
    context, entry = tls_server(tmp_path)
    with server(answers=10**9, tls=context) as port:
        measured = generate(Load("127.0.0.1", port, 2, 3, 0.01, 0.1, pid=None, entry=entry), [FRAME])
    assert context.get_ciphers()[0]["name"] != CIPHER
    assert measured.requests > 2 * 3


def test_a_tls_version_or_cipher_other_than_the_chosen_one_is_an_error(tmp_path: Path) -> None:
    context, entry = tls_server(tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    load = Load("127.0.0.1", 0, 1, 1, 0.0, 30.0, pid=None, entry=entry)
    with (
        server(answers=3, tls=context) as port,
        pytest.raises(EntryError, match=r"TLS is TLSv1\.2 with .*, not TLSv1\.3 with TLS_AES_128_GCM_SHA256"),
    ):
        measure(Order(replace(load, port=port), 1, begin_s=0.0), FRAME)
