"""TLS clients that mean no good: names that are none, handshakes that never end, bytes that are no TLS."""

from __future__ import annotations

import ssl
import sys
from typing import TYPE_CHECKING

import pytest

from proxy.addresses import ServerNames
from proxy.tls.contexts import Pair, server_context, server_name_of
from tests.proxy.certificates import HOST, client_context, write_pair

if TYPE_CHECKING:
    from pathlib import Path

PLACEHOLDER = "broker-0.kafka.test"


def hello(name: bytes) -> bytes:
    """A ClientHello that calls the server by any bytes, as long as the placeholder."""
    assert len(name) == len(PLACEHOLDER)
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=PLACEHOLDER)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    said = outgoing.read()
    assert said.count(PLACEHOLDER.encode()) == 1
    return said.replace(PLACEHOLDER.encode(), name)


@pytest.mark.parametrize(
    "name",
    [b"broker-\xff\xfe.kafka.tes", "brök\x00r-0.kafka.tes".encode(), b"broker-\x00.kafka.test", b"\xf0" * 19],
)
def test_server_names_that_are_no_ascii_end_the_handshake_and_write_nothing(
    name: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback each would fill the log."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    context = server_context(Pair(*write_pair(tmp_path, HOST), "tls_cert"), ssl.CERT_NONE, None, by_name=True)
    incoming = ssl.MemoryBIO()
    incoming.write(hello(name))
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLError, match=r"callback failed|bad extension"):
        server.do_handshake()
    assert printed == []
    assert capfd.readouterr().err == ""


def test_what_else_cannot_be_raised_is_still_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    pair = Pair(*write_pair(tmp_path, HOST), "tls_cert")
    for _ in range(2):  # as when the files have changed
        server_context(pair, ssl.CERT_NONE, None, by_name=True)

    class Unlucky:
        def __del__(self) -> None:
            raise ZeroDivisionError

    Unlucky()
    assert len(printed) == 1


@pytest.mark.parametrize(
    "name", [b"bro\nker\x1b[2J.kafka..", b"b" * 19, b"broker-99999999999.", b"broker-0.kafka.tesT", b"." * 19]
)
def test_other_odd_names_are_no_brokers(name: bytes, tmp_path: Path) -> None:
    context = server_context(Pair(*write_pair(tmp_path, HOST), "tls_cert"), ssl.CERT_NONE, None, by_name=True)
    incoming = ssl.MemoryBIO()
    incoming.write(hello(name))
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    assert server_name_of(server) == name.decode()  # type: ignore[arg-type]  # SSLObjects keep it as well
    meant = ServerNames("kafka.test", 9092).node_id(name.decode())
    assert meant == (0 if name.endswith(b"tesT") else None)
