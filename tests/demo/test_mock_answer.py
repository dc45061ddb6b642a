"""librdkafka's mock cluster rejects ApiVersions v3 in a malformed response; Weir forwards it unchanged,
and clients accept it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from weir.demo.proxy_process import weir

REQUEST = bytes.fromhex("00000012 0012 0003 00000007 0002 6162 00 02 61 02 62 00")
"""ApiVersions v3, correlation id 7, client-id ab, software a of version b."""
SENT_BY_MOCK_2_16 = bytes.fromhex("00000011 00000007 0023 01 0012 0000 0002 00000000")
"""A response with correlation id 7, error 35, and an array that is neither that of version 0 nor of
version 3.
"""
SENT_BY_KAFKA = bytes.fromhex("00000010 00000007 0023 00000001 0012 0000 0002")
"""A response like that of 2.3 brokers: version 0, with the supported versions of ApiVersions."""


def frame(sock: socket.socket) -> bytes:
    """Read one frame, or all bytes until the connection closes."""
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
        more = sock.recv(65536)
        if not more:
            break
        received += more
    return received


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker that answers ApiVersions with this response, and closes the connection after any other
    request.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server, request.param), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def serve(server: socket.socket, answer: bytes) -> None:
    """Serve connections one after the other until the server is shut down."""
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            with client:
                if frame(client) == REQUEST:
                    client.sendall(answer)
                    client.recv(1)


@pytest.mark.parametrize(
    ("broker", "answer"),
    [
        pytest.param(SENT_BY_MOCK_2_16, SENT_BY_MOCK_2_16, id="mock"),
        pytest.param(SENT_BY_KAFKA, SENT_BY_KAFKA, id="kafka"),
    ],
    indirect=["broker"],
)
def test_a_refused_version_passes_untouched(broker: str, answer: bytes, tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("")
    with weir(broker, [1], quotas) as bootstrap:
        host, port = bootstrap.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(REQUEST)
            assert frame(client) == answer
