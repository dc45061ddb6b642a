"""The server with TLS on either side: who gets in and as whom, which broker is meant, who is refused."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.kfake.cluster import Cluster
from tests.kfake.in_trio import serve
from tests.proxy.certificates import HOST, authority, client_context, context_of, write_ca, write_pair
from tests.proxy.stage import LONG_S, METADATA, PING, PONG, Play, Stage, until
from tests.scripted import staged
from tests.wire.frames import body_of
from weir.protocol.messages import MetadataResponse
from weir.proxy import file_watch
from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config.config import ConfigError
from weir.proxy.connection.connection import ANONYMOUS
from weir.proxy.net.tls import handshakes

DOMAIN = "kafka.test"


@pytest.fixture
def listener(tmp_path: Path) -> dict[str, Any]:
    cert, key = write_pair(tmp_path, HOST, f"*.{DOMAIN}")
    return {"tls_cert": f"{cert},{key}"}


@pytest.fixture
def mutual(listener: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    return listener | {"tls_client_auth": "required", "tls_client_ca": str(write_ca(tmp_path, "clients"))}


def users(stage: Stage) -> list[str]:
    return [relay.connection.client.user for relay in stage.plane.relays]


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


# Getting in


@staged("listener", brokers=(0, 1))
async def test_clients_are_served_over_tls_at_every_listener(stage: Stage) -> None:
    bootstrap = await stage.connect_tls(client_context())
    answer = await bootstrap.ask(METADATA)
    assert answer is not None
    told = {b.node_id: Address(b.host, b.port) for b in body_of(answer, MetadataResponse, 9).brokers}
    assert told == {0: stage.port(0), 1: stage.port(1)}
    client = await stage.connect_tls(client_context(), node_id=1)
    assert await client.ask(PING) == PONG
    assert stage.cluster.asked[-1] == (1, PING)
    assert users(stage) == [ANONYMOUS, ANONYMOUS]
    await client.stream.aclose()
    await stage.closed(CloseReason.CLIENT_CLOSED)


def test_the_oldest_accepted_tls_version_is_1_2(play: Play, listener: dict[str, Any]) -> None:
    old = context_of("clients", "old")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    new = context_of("clients", "new")
    new.maximum_version = ssl.TLSVersion.TLSv1_2

    async def script(stage: Stage) -> None:
        client = await stage.connect_tls(new)
        assert await client.ask(PING) == PONG
        with capture_logs() as logged:
            with pytest.raises(trio.BrokenResourceError):
                await stage.connect_tls(old)
            await stage.closed(CloseReason.CLIENT_HANDSHAKE_FAILED)
        assert "TLS 1.2 is the oldest" in said(logged)

    play(script, **listener)


# As whom


@pytest.mark.parametrize(
    ("rules", "user"), [("DEFAULT", "CN=alice,OU=Sales\\, east"), ("RULE:^CN=([^,]*).*$/$1/U", "ALICE")]
)
def test_a_client_certificate_gives_the_principal(
    play: Play, mutual: dict[str, Any], rules: str, user: str
) -> None:
    async def script(stage: Stage) -> None:
        client = await stage.connect_tls(context_of("clients", "alice", unit="Sales, east"))
        assert await client.ask(PING) == PONG
        assert users(stage) == [user]

    play(script, **mutual, ssl_principal_mapping_rules=rules)


# Who is refused


def said(logged: list[Any]) -> str:
    (line,) = [line for line in logged if line["event"] == "connection refused"]
    return str(line["detail"])


@pytest.mark.parametrize(
    ("who", "reason", "detail"),
    [
        (None, CloseReason.CLIENT_CERTIFICATE_MISSING, "no certificate"),
        ("strangers", CloseReason.CLIENT_CERTIFICATE_INVALID, "not trusted"),
        ("clients", CloseReason.PRINCIPAL_UNMAPPED, "no rule of ssl_principal_mapping_rules"),
    ],
)
@staged("mutual", ssl_principal_mapping_rules="RULE:^CN=bob$/bob/")
async def test_an_untrusted_client_certificate_is_counted_and_logged_once(
    stage: Stage, who: str | None, reason: CloseReason, detail: str
) -> None:
    context = client_context() if who is None else context_of(who, "alice")
    with capture_logs() as logged:
        with suppress(trio.BrokenResourceError):  # TLS 1.3 tells a client after the handshake
            client = await stage.connect_tls(context)
            assert await client.ask(PING) is None
        await stage.closed(reason)
    assert detail in said(logged)
    assert stage.cluster.asked == []
    await until(lambda: stage.plane.counters.sessions_open == 0)


def test_a_client_that_rejects_weirs_certificate_is_counted(play: Play, listener: dict[str, Any]) -> None:
    def connect(port: int) -> None:
        with socket.create_connection((HOST, port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(plain, server_hostname=HOST)

    async def script(stage: Stage) -> None:
        with capture_logs() as logged:
            await trio.to_thread.run_sync(connect, stage.first_port)
            await stage.closed(CloseReason.CLIENT_HANDSHAKE_FAILED)
        assert "does not accept the certificate of tls_cert" in said(logged)

    play(script, **listener)


@staged("listener")
async def test_a_plaintext_client_on_a_tls_port_has_a_close_reason(stage: Stage) -> None:
    with capture_logs() as logged:
        client = await stage.connect()
        assert await client.ask(PING) is None
        await stage.closed(CloseReason.PLAIN_ON_TLS_PORT)
    assert "security.protocol=SSL" in said(logged)


@staged("listener")
async def test_a_client_without_a_first_flight_is_closed_although_others_may_take_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "FIRST_FLIGHT_S", 0.05)
    with capture_logs() as logged:
        for beginning in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"):
            client = await stage.connect()
            await client.stream.send_all(beginning)
        await stage.closed(CloseReason.CLIENT_HANDSHAKE_TIMEOUT, 3)
    refused = [line for line in logged if line["event"] == "connection refused"]  # later ones a second later
    assert {line["detail"] for line in refused} == {"no ClientHello within 0.05 s"}


@staged("listener")
async def test_a_client_that_stops_behind_its_first_flight_times_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "TIMEOUT_S", 0.05)
    client = await stage.connect()
    await client.stream.send_all(client_hello())
    assert await client.stream.receive_some()
    await stage.closed(CloseReason.CLIENT_HANDSHAKE_TIMEOUT)


@staged("listener")
async def test_a_client_hello_that_arrived_while_weir_was_busy_is_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "FIRST_FLIGHT_S", 0.0)  # over before the first look
    hello = client_hello()
    with socket.create_connection((HOST, stage.first_port)) as plain:
        plain.sendall(hello)
        plain.setblocking(False)
        await trio.lowlevel.wait_readable(plain)
        assert plain.recv(1) == b"\x16"


@staged("listener")
async def test_four_hundred_clients_with_one_byte_each_delay_no_tls_handshake(stage: Stage) -> None:
    with ExitStack() as stack:
        for _ in range(400):
            plain = stack.enter_context(socket.create_connection((HOST, stage.first_port)))
            plain.send(b"\x16")
            await trio.lowlevel.checkpoint()
        client = await stage.connect_tls(client_context())
        assert await client.ask(PING) == PONG
        assert stage.plane.counters.sessions_open == 401  # none has timed out


@staged("listener", connections_max=10)
async def test_one_address_may_have_half_of_all_places_for_unfinished_tls_handshakes(stage: Stage) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            plain = socket.create_connection((HOST, stage.first_port), source_address=("127.0.0.2", 0))
            stack.enter_context(plain).send(b"\x16")
        await stage.closed(CloseReason.UNFINISHED_HANDSHAKES, 15)
        assert stage.plane.counters.sessions_open == 5
        client = await stage.connect_tls(client_context())
        assert await client.ask(PING) == PONG
    assert stage.plane.counters.closed[CloseReason.CONNECTION_LIMIT] == 0


@staged("listener")
async def test_a_probe_that_only_connects_to_a_tls_port_logs_no_warning(stage: Stage) -> None:
    with capture_logs() as logged:
        socket.create_connection((HOST, stage.first_port)).close()
        await stage.closed(CloseReason.CLIENT_CLOSED)
    assert {line["log_level"] for line in logged} <= {"debug"}


@staged("listener")
async def test_a_hundred_tls_handshakes_at_once_do_not_stop_other_clients(stage: Stage) -> None:
    first = await stage.connect_tls(client_context())
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(stage.connect_tls, client_context())
        assert await first.ask(PING) == PONG
    for client in stage.clients:
        assert await client.ask(PING) == PONG


@staged("listener")
async def test_stopping_closes_clients_during_their_tls_handshakes(stage: Stage) -> None:
    for beginning in (b"\x16", b"\x16\x03\x01\x02\x00\x01", b""):
        client = await stage.connect()
        await client.stream.send_all(beginning)
    await until(lambda: stage.plane.counters.sessions_open == 3)
    stage.server.stop()
    await stage.closed(CloseReason.STOPPED, 3)


@staged("listener")
async def test_a_client_that_resets_during_its_tls_handshake_logs_no_warning(stage: Stage) -> None:
    with capture_logs() as logged:
        with socket.create_connection((HOST, stage.first_port)) as plain:
            plain.send(b"\x16\x03\x01")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await until(lambda: sum(stage.plane.counters.closed.values()) == 1)
    assert stage.plane.counters.closed[CloseReason.CLIENT_RESET] == 1
    assert {line["log_level"] for line in logged} <= {"debug"}


# Certificates that change


def swap(link: Path, target: Path) -> None:
    """Let a link point elsewhere, in one step, as Kubernetes does."""
    new = link.with_name("new")
    new.symlink_to(target)
    os.replace(new, link)  # noqa: PTH105  # of the link, not of what it points to


async def fingerprint(stage: Stage) -> bytes:
    client = await stage.connect_tls(client_context())
    assert isinstance(client.stream, trio.SSLStream)
    found: bytes = client.stream.getpeercert(binary_form=True)
    return found


def test_a_changed_certificate_is_reloaded_and_an_invalid_one_is_not(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_S", 0.01)
    for name in ("first", "second", "bad"):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name, HOST)
    (tmp_path / "bad" / "tls.key").write_bytes((tmp_path / "first" / "tls.key").read_bytes())
    (tmp_path / "data").symlink_to("first")
    mounted = {"tls_cert": f"{tmp_path}/data/tls.crt,{tmp_path}/data/tls.key"}

    async def script(stage: Stage) -> None:
        (of_files,) = stage.server.config.tls.files
        old = await stage.connect_tls(client_context())
        before = await fingerprint(stage)
        with capture_logs() as logged:
            swap(tmp_path / "data", tmp_path / "bad")
            await until(lambda: of_files.refused == 1)
            assert await fingerprint(stage) == before
            assert of_files.outage
            assert of_files.expires_s > time.time()
            swap(tmp_path / "data", tmp_path / "second")
            await until(lambda: not of_files.outage)
        with trio.fail_after(LONG_S):
            while await fingerprint(stage) == before:  # the worker has not got the files yet
                pass
        assert await old.ask(PING) == PONG
        refused, taken = [line for line in logged if line["event"].startswith("changed TLS files")]
        assert "the key is not that of the certificate" in refused["error"]
        assert taken["log_level"] == "info"

    play(script, **mounted)


# One port for all brokers


@staged("listener", brokers=(0, 1, 5), sni_domain=f"{DOMAIN}.", broker_ports="")
async def test_tls_server_names_select_the_broker(stage: Stage) -> None:
    for name in (f"bootstrap.{DOMAIN}", HOST, f"weir.{DOMAIN}"):
        client = await stage.connect_tls(client_context(), name)
        answer = await client.ask(METADATA)
        assert answer is not None
        told = {b.node_id: (b.host, b.port) for b in body_of(answer, MetadataResponse, 9).brokers}
        assert told == {n: (f"broker-{n}.{DOMAIN}", stage.first_port) for n in (0, 1, 5)}
    for node_id in (5, 0, 1):
        client = await stage.connect_tls(client_context(), f"Broker-{node_id}.{DOMAIN}")
        assert await client.ask(PING) == PONG
        assert stage.cluster.asked[-1] == (node_id, PING)


@staged("listener", sni_domain=DOMAIN, broker_ports="")
async def test_a_tls_server_name_of_an_unknown_broker_is_refused(stage: Stage) -> None:
    with capture_logs() as logged:
        client = await stage.connect_tls(client_context(), f"broker-7.{DOMAIN}")
        assert await client.ask(PING) is None
        await stage.closed(CloseReason.SERVER_NAME_UNKNOWN)
    assert said(logged) == "no broker 7 is known"


@staged("listener", brokers=(0, 1), sni_domain=DOMAIN, broker_ports="")
async def test_a_tls_listener_shared_by_brokers_stays_open_while_one_is_unreachable(stage: Stage) -> None:
    stage.brokers[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    client = await stage.connect_tls(client_context(), f"broker-1.{DOMAIN}")
    assert await client.ask(PING) is None
    assert stage.plane.counters.closed[CloseReason.BROKER_UNREACHABLE] == 1
    client = await stage.connect_tls(client_context(), f"broker-0.{DOMAIN}")
    assert await client.ask(PING) == PONG


@staged("listener", sni_domain=DOMAIN, broker_ports="")
async def test_a_new_broker_has_its_tls_server_name_at_once(stage: Stage) -> None:
    await stage.nursery.start(serve, stage.cluster, 3)
    client = await stage.connect_tls(client_context(), f"bootstrap.{DOMAIN}")
    assert await client.ask(METADATA) is not None
    client = await stage.connect_tls(client_context(), f"broker-3.{DOMAIN}")
    assert await client.ask(PING) == PONG
    assert stage.cluster.asked[-1] == (3, PING)


# Towards brokers


@pytest.fixture
def brokers_ca(tmp_path: Path) -> str:
    return str(write_ca(tmp_path, "brokers"))


def broker_context(*names: str, mutual: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority("brokers").issue_cert(*names).configure_cert(context)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        authority("clients").configure_trust(context)
    return context


def test_upstream_brokers_are_reached_by_tls(play: Play, brokers_ca: str) -> None:
    async def script(stage: Stage) -> None:
        client = await stage.connect(0)
        assert await client.ask(PING) == PONG
        await client.stream.aclose()
        await stage.closed(CloseReason.CLIENT_CLOSED)

    cluster = Cluster(tls=broker_context(HOST))
    play(script, cluster=cluster, upstream_tls=brokers_ca)


def test_tls_works_on_both_sides_with_a_client_certificate_for_brokers(
    play: Play, mutual: dict[str, Any], brokers_ca: str, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    cert, key = write_pair(tmp_path / "own", "weir", ca="clients")

    async def script(stage: Stage) -> None:
        client = await stage.connect_tls(context_of("clients", "alice"), node_id=0)
        assert await client.ask(PING) == PONG
        assert users(stage) == ["CN=alice"]

    play(
        script,
        cluster=Cluster(tls=broker_context(HOST, mutual=True)),
        **mutual,
        upstream_tls=brokers_ca,
        upstream_cert=f"{cert},{key}",
    )


@pytest.mark.parametrize(
    ("tls", "options", "text"),
    [
        (("elsewhere.test",), {}, "its certificate is for other names"),
        ((HOST,), {"upstream_tls": "system"}, "its certificate is not trusted: .*: set upstream_tls"),
        ((), {}, "it does not speak TLS|it closed the connection during the TLS handshake"),
    ],
    ids=["another name", "another authority", "plain"],
)
def test_unsuitable_upstream_tls_stops_the_start_and_names_the_setting(
    play: Play, brokers_ca: str, tls: tuple[str, ...], options: dict[str, Any], text: str
) -> None:
    cluster = Cluster(tls=broker_context(*tls) if tls else None, garbage=b"" if tls else b"\0\0\0\1?")
    with pytest.raises(ConfigError, match=text) as refusal:
        play(None, cluster=cluster, **{"upstream_tls": brokers_ca} | options)
    assert str(refusal.value).startswith(f"cannot connect to the brokers: {HOST}:")
    assert "--upstream" not in str(refusal.value), "that broker was reached"


def test_a_broker_that_requires_a_certificate_is_reported_to_the_operator(
    play: Play, brokers_ca: str
) -> None:
    async def script(stage: Stage) -> None:
        with capture_logs() as logged:
            client = await stage.connect()
            assert await client.ask(PING) is None
            await stage.closed(CloseReason.BROKER_RESET)
        (line,) = [line for line in logged if line["event"] == "connection closed"]
        assert "upstream_cert" in line["detail"]

    with refusing_server(broker_context(HOST, mutual=True)) as port:
        cluster = Cluster(nodes={0: Address(HOST, port)})
        play(script, brokers=(), cluster=cluster, upstream_tls=brokers_ca)


@contextmanager
def refusing_server(context: ssl.SSLContext) -> Iterator[int]:
    """Tries to shake hands with every client, and tells it by an alert why it will not; yields its port."""

    def serve() -> None:
        while True:
            plain, _ = listening.accept()
            plain.settimeout(5)
            with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as tls:
                try:
                    tls.do_handshake()
                except OSError:
                    read_to_the_end(tls)
                else:
                    return

    with socket.create_server((HOST, 0)) as listening:
        thread = Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            welcome = context_of("clients", "the last one")
            authority("brokers").configure_trust(welcome)
            with socket.create_connection(listening.getsockname()) as plain:
                welcome.wrap_socket(plain, server_hostname=HOST).close()
            thread.join()


def read_to_the_end(tls: ssl.SSLSocket) -> None:
    """Read until the peer has closed: closing before that would reset the connection, and with it may go the
    alert that the peer has not read.
    """
    with suppress(OSError):
        tls.shutdown(socket.SHUT_WR)
        while tls.recv(4096):
            pass


def test_a_broker_whose_certificate_becomes_invalid_is_refused(play: Play, brokers_ca: str) -> None:
    cluster = Cluster(tls=broker_context(HOST))

    async def script(stage: Stage) -> None:
        cluster.tls = broker_context("elsewhere.test")
        with capture_logs() as logged:
            client = await stage.connect(0)
            assert await client.ask(PING) is None
            await stage.closed(CloseReason.BROKER_HANDSHAKE_FAILED)
        assert "its certificate is for other names" in said(logged)

    play(script, cluster=cluster, upstream_tls=brokers_ca)
