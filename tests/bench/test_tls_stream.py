"""A TLS connection read and written as if it were plain."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import certificate
from bench.tls_stream import RECORD_BYTES, TlsStream
from tests.kafka.settings import HOST


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Client, which does not block, and server of a connection."""
    made = certificate.make(tmp_path / "tls")
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(made.both)
    client_context = ssl.create_default_context(cafile=made.ca)
    ours, theirs = socket.socketpair()
    server = server_context.wrap_socket(theirs, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.do_handshake)
    thread.start()
    with server, client_context.wrap_socket(ours, server_hostname=HOST) as client:
        thread.join()
        client.setblocking(False)
        yield client, server


def received(stream: TlsStream, room: int) -> bytes:
    """Everything until there is nothing, or the end."""
    out, buffer = b"", bytearray(room)
    try:
        while count := stream.recv_into(buffer):
            out += buffer[:count]
    except BlockingIOError:
        pass
    return out


@pytest.mark.parametrize("size", [1, 4095, 4096, RECORD_BYTES, RECORD_BYTES + 1, 70_000])
@pytest.mark.parametrize("room", [RECORD_BYTES, RECORD_BYTES + 10_000, 1 << 20])
def test_a_tls_stream_reads_all_bytes_and_leaves_none_pending(
    pair: tuple[ssl.SSLSocket, ssl.SSLSocket], size: int, room: int
) -> None:
    client, server = pair
    data = bytes(range(256)) * (size // 256 + 1)
    server.sendall(data[:size])
    buffer, out, stream = bytearray(room), b"", TlsStream(client)
    while len(out) < size:
        count = stream.recv_into(buffer)
        out += buffer[:count]
        assert client.pending() == 0
    assert out == data[:size]


def test_a_tls_stream_reads_several_tls_records_at_once(pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    server.sendall(bytes(4 * RECORD_BYTES))
    assert TlsStream(client).recv_into(bytearray(1 << 20)) == 4 * RECORD_BYTES


def test_a_tls_stream_without_data_raises_blockingioerror(pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """A TLS 1.3 server's session tickets wake the reader, who then has nothing to read."""
    client, server = pair
    stream = TlsStream(client)
    with pytest.raises(BlockingIOError):
        stream.recv_into(bytearray(1 << 20))
    server.sendall(b"x")
    assert received(stream, RECORD_BYTES) == b"x"


def test_a_tls_stream_reads_0_bytes_at_the_end(pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    server.close()
    assert TlsStream(client).recv_into(bytearray(1 << 20)) == 0


def test_a_tls_stream_sends_the_remaining_bytes_later(pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, server = pair
    stream, rest = TlsStream(client), memoryview(bytes(range(256)) * 20_000)
    whole, found = bytes(rest), bytearray()
    while rest:
        try:
            rest = rest[stream.send(rest) :]
        except BlockingIOError:
            found += server.recv(1 << 20)
    while len(found) < len(whole):
        found += server.recv(1 << 20)
    assert found == whole


def test_a_tls_stream_with_a_full_socket_sends_nothing(pair: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    client, _server = pair
    stream, data = TlsStream(client), memoryview(bytes(1 << 24))
    sent = stream.send(data)
    assert 0 < sent < len(data)
    with pytest.raises(BlockingIOError):
        stream.send(data[sent:])
