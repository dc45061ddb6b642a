"""What a connection does before its first request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.entry import PLAIN, Entry, EntryError, open_connection
from weir.protocol.framing import LENGTH

HOST = "127.0.0.1"
FIRST, SECOND = LENGTH.pack(3) + b"one", LENGTH.pack(5) + b"other"
ENTRY = Entry(greetings=(FIRST.hex(), SECOND.hex()))


def answer(error_code: int) -> bytes:
    content = LENGTH.pack(1) + error_code.to_bytes(2, signed=True) + b"more"
    return LENGTH.pack(len(content)) + content


@contextmanager
def server(answers: Sequence[bytes]) -> Iterator[tuple[int, bytearray]]:
    """A port; who connects gets an answer whenever something arrives, then the end. And what has arrived."""
    received = bytearray()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            for said in answers:
                received.extend(connection.recv(100))
                connection.sendall(said)

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join()


def test_opening_a_plain_connection_sends_nothing_and_sets_tcp_nodelay() -> None:
    with server([]) as (port, _), open_connection(HOST, port, PLAIN, 5.0) as connection:
        assert connection.recv(1) == b""
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_each_sasl_request_waits_for_the_response_to_the_one_before() -> None:
    with server([answer(0), answer(0)]) as (port, received):
        open_connection(HOST, port, ENTRY, 5.0).close()
    assert received == FIRST + SECOND


@pytest.mark.parametrize(("code", "told"), [(58, "error code 58"), (-1, "error code -1")])
def test_a_failed_sasl_authentication_is_an_error_that_names_the_code(code: int, told: str) -> None:
    """58 is SASL_AUTHENTICATION_FAILED."""
    with (
        server([answer(0), answer(code)]) as (port, _),
        pytest.raises(EntryError, match=told),
    ):
        open_connection(HOST, port, ENTRY, 5.0)


@pytest.mark.parametrize("sent", [b"", b"\0\0", answer(0)[:-1]])
def test_a_connection_closed_during_authentication_is_an_error(sent: bytes) -> None:
    with server([sent]) as (port, _), pytest.raises(EntryError, match="closed instead of an answer"):
        open_connection(HOST, port, ENTRY, 5.0)
