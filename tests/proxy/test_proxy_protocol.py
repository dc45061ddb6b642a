"""Clients behind load balancers, which send PROXY headers: who they are, and who is refused."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.kfake.in_trio import Connection
from tests.proxy.certificates import HOST as NAME
from tests.proxy.certificates import client_context, write_pair
from tests.proxy.stage import PING, PONG, Stage, until
from tests.scripted import staged
from tests.wire.proxy_headers import LOCAL, PROXY, TCP_4, UNSPEC, ends, header, of, tlv
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.net.proxy_protocol import receive

LISTED = "10.0.0.0/8, 127.0.0.1"
ELSEWHERE = "10.0.0.0/8"


async def sent(stage: Stage, data: bytes) -> Connection:
    client = await stage.connect(0)
    await client.stream.send_all(data)
    return client


def peers(stage: Stage) -> list[str]:
    return sorted(relay.connection.client.peer for relay in stage.plane.relays)


@staged(proxy_protocol_from=LISTED)
async def test_a_client_behind_a_listed_load_balancer_has_the_address_in_the_header(stage: Stage) -> None:
    for data in (of("192.0.2.7", 5), of("2001:db8::7", 6), of("::ffff:192.0.2.9", 7)):
        client = await sent(stage, data)
        assert await client.ask(PING) == PONG
    assert peers(stage) == ["192.0.2.7:5", "192.0.2.9:7", "[2001:db8::7]:6"]


@staged(proxy_protocol_from=LISTED)
async def test_the_first_request_may_follow_the_header_at_once_and_the_header_may_come_in_pieces(
    stage: Stage,
) -> None:
    data = header(PROXY, TCP_4, ends("192.0.2.7", 5) + tlv(4, bytes(300)))
    client = await stage.connect(0)
    for begin in range(0, len(data), 7):
        await client.stream.send_all(data[begin : begin + 7])
        await trio.testing.wait_all_tasks_blocked()
    assert await client.ask(PING) == PONG
    at_once = await stage.connect(0)
    assert await at_once.ask(data + PING) == PONG
    assert peers(stage) == ["192.0.2.7:5"] * 2


@staged(proxy_protocol_from=LISTED, max_connections_per_ip=1)
async def test_limits_of_connections_count_clients_behind_a_load_balancer_by_their_own_addresses(
    stage: Stage,
) -> None:
    first = await sent(stage, of("192.0.2.7", 5))
    assert await first.ask(PING) == PONG
    other = await sent(stage, of("192.0.2.8", 5))
    assert await other.ask(PING) == PONG
    await sent(stage, of("192.0.2.7", 6) + PING)
    await stage.closed(CloseReason.CONNECTIONS_PER_IP)
    await first.stream.aclose()
    await stage.closed(CloseReason.CLIENT_CLOSED)
    again = await sent(stage, of("192.0.2.7", 7))
    assert await again.ask(PING) == PONG


@staged(proxy_protocol_from=LISTED, max_connections_per_ip=2)
async def test_connections_without_an_address_of_their_own_have_the_load_balancers(stage: Stage) -> None:
    for data in (header(LOCAL, UNSPEC), header(PROXY, UNSPEC, bytes(9))):
        client = await sent(stage, data)
        assert await client.ask(PING) == PONG
    assert {peer.rpartition(":")[0] for peer in peers(stage)} == {HOST}
    await sent(stage, header(LOCAL, UNSPEC))
    await stage.closed(CloseReason.CONNECTIONS_PER_IP)


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        (PING, CloseReason.PROXY_HEADER_MISSING, "no PROXY header"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.8 5 6\r\n", CloseReason.PROXY_HEADER_INVALID, "version 1"),
        (header(PROXY, 0x71, bytes(12)), CloseReason.PROXY_HEADER_INVALID, "family 7"),
        (header(PROXY, TCP_4, length=65_535), CloseReason.PROXY_HEADER_INVALID, "limit 4096"),
    ],
)
def test_a_listed_peer_without_a_usable_header_is_refused(
    play: Any, data: bytes, reason: CloseReason, said: str
) -> None:
    async def script(stage: Stage) -> None:
        with capture_logs() as logged:
            client = await sent(stage, data)
            assert await client.frame() is None
        (line,) = [line for line in logged if line["event"] == "connection refused"]
        assert (line["reason"], said in line["detail"]) == (reason, True)
        assert stage.plane.counters.sessions_open == 0
        assert stage.cluster.asked == []

    play(script, proxy_protocol_from=LISTED)


def test_a_listed_peer_that_sends_no_header_in_time_is_refused(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "HEADER_S", 0.05)

    async def script(stage: Stage) -> None:
        for data in (b"", of("192.0.2.7", 5)[:20]):
            client = await sent(stage, data)
            assert await client.frame() is None
        assert stage.plane.counters.closed == {CloseReason.PROXY_HEADER_TIMEOUT: 2}

    play(script, proxy_protocol_from=LISTED)


@staged(proxy_protocol_from=LISTED)
async def test_a_load_balancers_check_of_the_port_is_no_warning(stage: Stage) -> None:
    with capture_logs() as logged:
        polite = await stage.connect(0)
        await polite.stream.aclose()
        await stage.closed(CloseReason.CLIENT_CLOSED)
        rude = socket.create_connection(stage.port(0))
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.close()
        await until(lambda: stage.plane.counters.closed.total() == 2)
    assert [line for line in logged if line["log_level"] != "debug"] == []
    cut = await sent(stage, of("192.0.2.7", 5)[:20])
    await cut.stream.aclose()
    await stage.closed(CloseReason.PROXY_HEADER_INVALID)


@staged(proxy_protocol_from=ELSEWHERE)
async def test_a_header_of_an_unlisted_peer_is_not_believed(stage: Stage) -> None:
    with capture_logs() as logged:
        client = await sent(stage, of("192.0.2.7", 5) + PING)
        assert await client.frame() is None
    (line,) = [line for line in logged if line["event"] == "connection closed"]
    assert line["client"].startswith(HOST)
    assert "not in proxy_protocol_from" in line["detail"]
    assert stage.plane.counters.closed == {CloseReason.REQUEST_TOO_LARGE: 1}
    assert stage.cluster.asked == []
    direct = await stage.connect(0)
    assert await direct.ask(PING) == PONG


@staged(proxy_protocol_from=LISTED, connections_max=1)
async def test_connections_that_wait_for_a_header_count_as_connections(stage: Stage) -> None:
    waiting = await stage.connect(0)
    await until(lambda: stage.plane.counters.sessions_open == 1)
    await stage.connect(0)
    await stage.closed(CloseReason.CONNECTION_LIMIT)
    await waiting.stream.send_all(of("192.0.2.7", 5))
    assert await waiting.ask(PING) == PONG


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Any]:
    cert, key = write_pair(tmp_path, NAME)
    return {"tls_cert": f"{cert},{key}", "proxy_protocol_from": LISTED}


@staged("tls")
async def test_the_header_comes_before_tls(stage: Stage) -> None:
    plain = await trio.open_tcp_stream(*stage.port(0))
    await plain.send_all(of("192.0.2.7", 5))
    client = Connection(trio.SSLStream(plain, client_context(), server_hostname=NAME, https_compatible=True))
    stage.clients.append(client)
    assert await client.ask(PING) == PONG
    assert peers(stage) == ["192.0.2.7:5"]


@pytest.mark.parametrize("text", ["kafka-1", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.1:5"])
def test_a_peer_that_is_no_address_or_network_is_a_mistake(text: str) -> None:
    with pytest.raises(config.ConfigError, match="proxy_protocol_from has"):
        config.load(None, {"upstream": "a:1", "proxy_protocol_from": text})


HAPROXY = """\
global
    nbthread 1
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen kafka
    bind 127.0.0.1:{port}
    server weir {weir} send-proxy-v2 check
"""


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="needs haproxy (Debian: apt-get install haproxy)")
@staged(proxy_protocol_from=LISTED, max_connections_per_ip=f"0,{HOST}:9,127.0.0.77:1")
async def test_a_client_behind_haproxy_is_known_by_its_own_address(stage: Stage, tmp_path: Path) -> None:
    port, file = free_range(1), tmp_path / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, weir=stage.port(0)))
    haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(file)])  # noqa: ASYNC220  # begins at once
    try:
        await until(lambda: stage.plane.counters.closed.total() > 0)  # HAProxy has checked the port
        for source, reached in (("127.0.0.77", True), ("127.0.0.77", False), ("127.0.0.78", True)):
            sock = trio.socket.socket()
            await sock.bind((source, 0))
            await sock.connect((HOST, port))
            client = Connection(trio.SocketStream(sock))
            stage.clients.append(client)
            assert (await client.ask(PING) == PONG) is reached
        assert [peer.rpartition(":")[0] for peer in peers(stage)] == ["127.0.0.77", "127.0.0.78"]
        assert stage.plane.counters.closed[CloseReason.CONNECTIONS_PER_IP] == 1
    finally:
        haproxy.terminate()
        haproxy.wait()
