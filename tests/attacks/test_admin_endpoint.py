"""Attacks on the admin endpoint by somebody who reaches it without the token."""

from __future__ import annotations

import itertools
import socket
import string
import struct
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.datastructures import QueryParams
from starlette.requests import Request
from structlog.testing import capture_logs

from tests.admin.stage import Stage, asked, get, play, play_with
from tests.kfake.cluster import HOST
from tests.proxy import certificates
from tests.proxy.stage import PING, until
from tests.scripted import scripted
from weir.proxy.admin import endpoint, http, places
from weir.proxy.admin.api import quotas as quotas_api
from weir.proxy.admin.api import routing
from weir.proxy.admin.api.entities import OPERATIONS
from weir.proxy.admin.problems import ProblemError
from weir.proxy.control.snapshots.quotas import quota_of, read_quotas
from weir.quotas import QuotaTable

TOKEN = "correct-horse-battery"  # noqa: S105


def _rules(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return {"admin": "0.0.0.0:9644", "admin_token_file": str(file)}


def _h2_frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def _h2_get(path: bytes) -> bytes:
    """A connection's first bytes: a request whose response has a window of 0 bytes."""
    fields = {b":method": b"GET", b":scheme": b"http", b":path": path, b":authority": b"localhost"}
    headers = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields.items()
    )
    settings = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")  # SETTINGS_INITIAL_WINDOW_SIZE
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _h2_frame(4, 0, 0, settings) + _h2_frame(1, 4 | 1, 1, headers)
    )


async def _said_until_closed(stream: trio.SocketStream) -> bytes:
    """The bytes that the endpoint sends before it closes the connection."""
    received = b""
    with trio.fail_after(20):
        try:
            while more := await stream.receive_some():
                received += more
        except trio.BrokenResourceError:
            pass
    return received


HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /api/quotas/preview" + HEAD + b"Content-Type: application/json\r\n"
CHANGE = b'{"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 1}}'
HOSTILE = {
    "nothing": b"",
    "garbage": bytes(range(256)) * 8,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "Kafka": PING,
    "HTTP/9": b"GET /api/status HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(200)),
    "a request of HTTP/2 without a window": _h2_get(b"/healthz"),
    "no host": b"GET /api/status HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /api/status HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no path": b"GET http://localhost" + HEAD + b"\r\n",
    "half an address": b"GET http://[::1" + HEAD + b"\r\n",
    "another scheme": b"GET gopher://localhost/healthz" + HEAD + b"\r\n",
    "asterisk": b"OPTIONS *" + HEAD + b"\r\n",
    "authority": b"CONNECT localhost:22" + HEAD + b"\r\n",
    "not ASCII": b"GET /\xff\xfe" + HEAD + b"\r\n",
    "not UTF-8, escaped": b"GET /%FF%00?q=%FF%00" + HEAD + b"\r\n",
    "parameters not UTF-8": b"GET /api/entities?q=%ED%A0%80&limit=%FF" + HEAD + b"\r\n",
    "a long line": b"GET /" + b"a" * 100_000 + HEAD + b"\r\n",
    "a long header": b"GET /api/status" + HEAD + b"A: " + b"a" * 100_000 + b"\r\n\r\n",
    "half a head": b"GET /api/status HTTP/1.1\r\nHo",
    "two lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a negative length": POST + b"Content-Length: -1\r\n\r\n",
    "a length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\nx",
    "no chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "half a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n9\r\nx",
    "a long trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"a" * 100_000,
    "half a body": POST + b"Content-Length: 1000\r\n\r\nx",
    "no body": POST + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
    "a long body": POST + b"Content-Length: 9000000\r\n\r\n" + b" " * 200_000,
    "a body for a page without one": b"GET /api/status"
    + HEAD
    + b"Content-Length: 9000000\r\n\r\n"
    + b"x" * 200_000,
    "many chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
    "a deep body": POST + b"Content-Length: 60000\r\n\r\n" + b"[" * 60_000,
    "a body not UTF-8": POST + b"Content-Length: 2\r\n\r\n\xff\xfe",
    "two requests": POST + b"Content-Length: %d\r\n\r\n" % len(CHANGE) + CHANGE + POST + b"\r\n",
    "a stream": b"GET /api/events" + HEAD + b"\r\n",
    "a stream with half a body": b"GET /api/events" + HEAD + b"Content-Length: 9\r\n\r\nx",
    "a websocket": b"GET /api/events" + HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "half a websocket": b"GET /api/status" + HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "a bad upgrade": b"GET /healthz"
    + HEAD
    + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: !\r\n\r\n",
}


def _reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@pytest.mark.parametrize("end", ["the sending half is closed", "reset", "silence"])
def test_malformed_http_ends_at_most_its_admin_connection(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_S", 0.1)
    monkeypatch.setattr(http, "LINGER_S", 0.1)
    monkeypatch.setattr(endpoint, "CONNECTION_S", 1.0)

    async def say(stage: Stage, said: bytes) -> None:
        bad = await trio.open_tcp_stream(HOST, stage.admin)
        async with bad:
            with suppress(trio.BrokenResourceError):  # refused before all of it was sent
                await bad.send_all(said)
                if end == "reset":
                    _reset(bad)
                elif end == "the sending half is closed":
                    await bad.send_eof()
            if end != "reset" and b"/api/events" not in said:
                await _said_until_closed(bad)

    async def script(stage: Stage) -> None:
        await stage.start()
        async with trio.open_nursery() as nursery:
            for said in HOSTILE.values():
                nursery.start_soon(say, stage, said)
        assert (await get(stage.admin, "/healthz"))[:2] == (200, b"ok\n")

    with capture_logs() as logs:
        play(script)
    assert [line for line in logs if line["log_level"] == "error" or "exc_info" in line] == []


@pytest.mark.parametrize(
    "said",
    [
        b"GET /healthz" + HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
        b"GET /healthz" + HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"GET http://weir.example.com/healthz HTTP/1.1\r\nHost: weir.example.com\r\n\r\n",
        b"GET HTTP://localhost:9644/api/status?" + HEAD + b"\r\n",
        b"GET http://127.0.0.1?" + HEAD + b"\r\n",
        b"GET /api/status HTTP/1.0\r\nHost: localhost\r\n\r\n",
    ],
    ids=["h2c", "websocket", "absolute", "absolute with a query", "absolute without a path", "HTTP/1.0"],
)
def test_offers_and_forms_of_other_tools_are_answered_by_the_page(said: bytes) -> None:
    async def script(stage: Stage) -> None:
        await stage.start()
        async with await trio.open_tcp_stream(HOST, stage.admin) as stream:
            await stream.send_all(said)
            assert (await _said_until_closed(stream)).startswith(b"HTTP/1.1 200 ")

    play(script)


def test_the_host_in_a_target_in_absolute_form_replaces_the_host_header() -> None:
    """RFC 9112, 3.2.2. Otherwise the header would hide from Weir which name a browser has been given."""

    async def script(stage: Stage) -> None:
        async with await trio.open_tcp_stream(HOST, stage.admin) as stream:
            await stream.send_all(b"GET http://evil.example.com/api/status" + HEAD + b"\r\n")
            assert (await _said_until_closed(stream)).startswith(b"HTTP/1.1 403 ")

    play(script)


@pytest.mark.parametrize(
    "content", [b"Content-Length: 9000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"]
)
def test_the_refusal_of_a_long_body_reaches_a_client_that_sends_all_of_it(content: bytes) -> None:
    async def script(stage: Stage) -> None:
        async with await trio.open_tcp_stream(HOST, stage.admin) as stream:
            await stream.send_all(POST + content + b"10000\r\n" + b" " * 0x10000 + b"\r\n1\r\n")
            await stream.send_all(b" " * 2_000_000)
            assert (await _said_until_closed(stream)).startswith(b"HTTP/1.1 413 ")

    play(script)


async def _asking(opened: AsyncExitStack, stage: Stage, said: bytes, number: int) -> list[trio.SocketStream]:
    streams = [
        await opened.enter_async_context(await trio.open_tcp_stream(HOST, stage.admin)) for _ in range(number)
    ]
    for stream in streams:
        await stream.send_all(said)
    return streams


async def _open_pages_answer(stage: Stage) -> None:
    for path in ("/healthz", "/readyz", "/", "/page/main.js"):
        assert (await get(stage.admin, path))[0] == 200, path


@pytest.mark.parametrize("path", [b"/api/entities", b"/api/connections", b"/api/quotas", b"/metrics"])
def test_requests_that_would_wait_for_many_others_get_503_and_do_not_hide_the_health_page(
    path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, may_end = 0, trio.Event()

    async def acquire(queue: places.ShortQueue) -> None:
        nonlocal made
        made += 1
        await entered(queue)
        await may_end.wait()

    entered = places.ShortQueue.__aenter__
    monkeypatch.setattr(places.ShortQueue, "__aenter__", acquire)

    async def script(stage: Stage) -> None:
        await stage.start()
        async with AsyncExitStack() as opened:
            streams = await _asking(opened, stage, b"GET " + path + HEAD + b"\r\n", 40)
            await until(lambda: made >= min(40, places.REQUESTS_MAX))
            await _open_pages_answer(stage)
            may_end.set()
            answers = [await _said_until_closed(stream) for stream in streams]
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503 ")]
        assert len(refused) == 40 - 1 - places.QUEUE_MAX
        assert all(b"\r\nretry-after: 1\r\n" in answer for answer in refused)
        assert sum(answer.startswith(b"HTTP/1.1 200 ") for answer in answers) == 1 + places.QUEUE_MAX

    play(script)


def test_a_request_replaces_one_whose_client_sends_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each unfinished body has a place."""

    async def script(stage: Stage) -> None:
        await stage.start()
        async with AsyncExitStack() as opened:
            said = POST + b"Content-Length: 1000\r\n\r\nx"
            streams = await _asking(opened, stage, said, places.REQUESTS_MAX)
            await _open_pages_answer(stage)
            status, _, headers = await get(stage.admin, "/api/brokers")
            assert (status, headers["retry-after"]) == (503, "1"), "no client has been slow for long"
            monkeypatch.setattr(places, "SLOW_S", 0.0)
            assert (await get(stage.admin, "/api/brokers"))[0] == 200
            assert await _said_until_closed(streams[0]) == b""

    play(script)


@pytest.mark.parametrize(
    "said",
    [
        _h2_get(b"/api/events"),
        b"GET /api/events HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /api/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx",
        b"GET /api/events HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx",
        b"GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n",
    ],
    ids=["HTTP/2", "GET", "unfinished body", "unfinished chunk", "wrong token"],
)
def test_readers_of_events_without_the_token_get_no_place_and_no_lasting_connection(
    said: bytes, tmp_path: Path
) -> None:
    async def script(stage: Stage) -> None:
        async with await trio.open_tcp_stream(HOST, stage.admin) as stream:
            await stream.send_all(said)
            assert b"event-stream" not in await _said_until_closed(stream)
        assert stage.server.events.readers == 0

    play_with(script, **_rules(tmp_path))


@scripted(play)
async def test_a_head_request_for_events_takes_no_readers_place(stage: Stage) -> None:
    status, body, headers = await asked(stage.admin, "HEAD", "/api/events", {})
    assert (status, body, headers.get_content_type()) == (200, b"", "text/event-stream")
    assert stage.server.events.readers == 0


def test_silent_tls_connections_that_are_replaced_leave_no_errors_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "CONNECTIONS_MAX", 2)
    cert, key = certificates.write_pair(tmp_path, HOST)

    async def script(stage: Stage) -> None:
        async with AsyncExitStack() as opened:
            silent = [
                await opened.enter_async_context(await trio.open_tcp_stream(HOST, stage.admin))
                for _ in range(5)
            ]
            for stream in silent[:3]:
                assert await _said_until_closed(stream) == b""

    with capture_logs() as logs:
        play_with(script, admin_tls_cert=f"{cert},{key}", **_rules(tmp_path))
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


class _Name(str):
    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_each_of_thousands_of_query_parameters_is_compared_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A head of 16 KB has room for 4,000 names. Weir serves no client while it checks them."""
    names = ("".join(letters) for letters in itertools.product(string.ascii_letters, repeat=3))
    given = [(_Name(name), "") for name in itertools.islice(names, 4000)]
    given.append(given[-1])
    monkeypatch.setattr(QueryParams, "multi_items", lambda _parameters: given)
    with pytest.raises(ProblemError, match="is given more than once"):
        routing._query(OPERATIONS[0], Request({"type": "http", "query_string": b"", "headers": []}))
    assert _Name.compared < 4 * len(given)


def test_work_on_a_whole_quota_table_is_done_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100,000 entries a preview takes 240 ms, and anybody on the host may ask for it."""
    reactors, threads = threading.get_ident(), set[int]()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            threads.add(threading.get_ident())
            return function(*args, **options)

        return called

    monkeypatch.setattr(QuotaTable, "altered", noting(QuotaTable.altered))
    monkeypatch.setattr(quotas_api, "quota_of", noting(quota_of))
    monkeypatch.setattr(quotas_api, "read_quotas", noting(read_quotas))
    change = {"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 1}}

    async def script(stage: Stage) -> None:
        await stage.json("/api/quotas")
        assert (await stage.post("/api/quotas/preview", change))[0] == 200
        assert (await stage.post("/api/quotas", {**change, "dry_run": True}, TOKEN))[0] == 200
        assert threads
        assert reactors not in threads

    play_with(script, admin_token_file=_rules(tmp_path)["admin_token_file"])
