"""TLS clients that mean no good: names that are none, certificates that are odd, bytes that are no TLS."""

from __future__ import annotations

import json
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
import structlog
import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.proxy.certificates import HOST, client_context, context_of, key_pem, pem_of, write_ca, write_pair
from tests.proxy.stage import PING, PONG, Play, Stage
from tests.scripted import staged
from weir.proxy import logs
from weir.proxy.addresses import ServerNames
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.tls.contexts import KeyPair, server_context, server_name_of
from weir.quotas import Entity, QuotaKey, QuotaTable, parse
from weir.quotas.table.quota_file import render

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
def test_a_server_name_that_is_not_ascii_ends_the_handshake_silently(
    name: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback each would fill the log."""
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    context = server_context(
        KeyPair(*write_pair(tmp_path, HOST), "tls_cert"), ssl.CERT_NONE, None, by_name=True
    )
    incoming = ssl.MemoryBIO()
    incoming.write(hello(name))
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLError, match=r"callback failed|bad extension"):
        server.do_handshake()
    assert printed == []
    assert capfd.readouterr().err == ""


def test_other_unraisable_errors_are_still_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    pair = KeyPair(*write_pair(tmp_path, HOST), "tls_cert")
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
def test_malformed_server_names_match_no_broker(name: bytes, tmp_path: Path) -> None:
    context = server_context(
        KeyPair(*write_pair(tmp_path, HOST), "tls_cert"), ssl.CERT_NONE, None, by_name=True
    )
    incoming = ssl.MemoryBIO()
    incoming.write(hello(name))
    server = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        server.do_handshake()
    assert server_name_of(server) == name.decode()  # type: ignore[arg-type]  # SSLObjects keep it as well
    meant = ServerNames("kafka.test", 9092).node_id(name.decode())
    assert meant == (0 if name.endswith(b"tesT") else None)


# Certificates


@pytest.fixture
def mutual(tmp_path: Path) -> dict[str, Any]:
    cert, key = write_pair(tmp_path, HOST)
    ca = write_ca(tmp_path, "clients")
    return {
        "tls_cert": f"{cert},{key}",
        "tls_client_auth": "required",
        "tls_client_ca": str(ca),
    }


def showing(directory: Path, subject: x509.Name) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    path = directory / "odd.pem"
    path.write_bytes(pem_of(subject, "clients", key) + key_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(write_ca(directory))
    context.check_hostname = False
    context.load_cert_chain(path)
    return context


def named(*parts: tuple[x509.ObjectIdentifier, str]) -> list[x509.NameAttribute[str]]:
    return [x509.NameAttribute(kind, value) for kind, value in parts]


ODD: list[tuple[list[list[x509.NameAttribute[str]]], str]] = [
    ([], ""),
    ([named((NameOID.COMMON_NAME, "a\n[[quota]]"))], "CN=a\n[[quota]]"),
    ([named((NameOID.COMMON_NAME, "\x1b[2Ja\x00b"))], "CN=\x1b[2Ja\\00b"),
    ([named((NameOID.COMMON_NAME, "a,CN=admin"))], "CN=a\\,CN\\=admin"),
    (
        [
            named((NameOID.COMMON_NAME, "a"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "b")),
            named((NameOID.COMMON_NAME, "c")),
        ],
        "CN=c,CN=a+OU=b",
    ),
]
"""Subjects, and what X500Principal.getName() makes of them (RFC 2253; a NUL as two hex digits)."""


@pytest.mark.parametrize(("subject", "user"), ODD)
def test_an_unusual_certificate_subject_is_one_escaped_name(
    play: Play,
    mutual: dict[str, Any],
    tmp_path: Path,
    subject: list[list[x509.NameAttribute[str]]],
    user: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    context = showing(tmp_path, x509.Name(map(x509.RelativeDistinguishedName, subject)))

    async def script(stage: Stage) -> None:
        client = await stage.connect_tls(context)
        assert await client.ask(PING) == PONG
        (relay,) = stage.plane.relays
        assert relay.connection.client.user == user

    play(script, **mutual)
    if user:
        table = QuotaTable({(Entity(user=user), QuotaKey.PRODUCER_BYTE_RATE): 1.0})
        assert parse(render(table)) == table
    forms: tuple[Literal["json", "console"], ...] = ("json", "console")
    for form in forms:
        logs.configure("info", form)
        capsys.readouterr()
        structlog.get_logger().info("authenticated", user=user)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()
        if form == "json":
            assert json.loads(line)["user"] == user


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_tls_session_keeps_its_certificate(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Else a client that comes back would be nobody, though a certificate is required."""
    server = server_context(
        KeyPair(*write_pair(tmp_path, HOST), "tls_cert"), ssl.CERT_REQUIRED, write_ca(tmp_path, "clients")
    )
    client = context_of("clients", "resumes")
    client.maximum_version = version
    first, certificate = shake(client, server, None)
    again, shown = shake(client, server, first.session)
    assert again.session_reused
    assert certificate is not None
    assert shown == certificate


def shake(
    client: ssl.SSLContext, server: ssl.SSLContext, connection: ssl.SSLSession | None
) -> tuple[ssl.SSLObject, bytes | None]:
    """A handshake in memory; the client, and the certificate that the server has seen."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=HOST, session=connection)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    theirs.write(b"x")  # TLS 1.3 gives out tickets with the first data
    assert ours.read(1) == b"x"
    return ours, theirs.getpeercert(binary_form=True)


# Bytes


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 4096,
        PING,
        b"\x17\x03\x03\x00\x20" + bytes(32),
        b"\x17\x03\x03\xff\xff",
        b"\x16\x03\x01\x00\x01\x01",
    ],
)
@staged("mutual")
async def test_garbage_after_a_tls_handshake_ends_only_its_connection(stage: Stage, garbage: bytes) -> None:
    neighbour = await stage.connect_tls(context_of("clients", "neighbour"))
    client = await stage.connect_tls(context_of("clients", "bad"))
    assert isinstance(client.stream, trio.SSLStream)
    assert await client.ask(PING) == PONG
    plain = client.stream.transport_stream
    await plain.send_all(garbage)
    with suppress(trio.BrokenResourceError):  # it has been seen to be garbage
        await plain.send_eof()
    await stage.closed(CloseReason.CLIENT_RESET)
    assert await neighbour.ask(PING) == PONG


@staged("mutual")
async def test_a_tls_handshake_sent_byte_by_byte_succeeds(stage: Stage) -> None:
    context = context_of("clients", "slow")
    plain = await trio.open_tcp_stream(HOST, stage.first_port)
    plain.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=HOST)

    async def flush() -> None:
        for byte in outgoing.read():
            await plain.send_all(bytes([byte]))

    async with plain:
        while True:
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                await flush()
                incoming.write(await plain.receive_some())
            else:
                break
        await flush()
        client.write(PING)
        await flush()
        received = b""
        while len(received) < len(PONG):
            try:
                received += client.read(len(PONG))
            except ssl.SSLWantReadError:
                incoming.write(await plain.receive_some())
        assert received == PONG
        (relay,) = stage.plane.relays
        assert relay.connection.client.user == "CN=slow"
