"""Attacks on the admin endpoint by somebody who reaches it without the token."""

from __future__ import annotations

import itertools
import string
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
from tests.scripted import scripted
from weir.proxy.admin import endpoint
from weir.proxy.admin.api import quotas as quotas_api
from weir.proxy.admin.api import routing
from weir.proxy.admin.api.entities import OPERATIONS
from weir.proxy.admin.problems import ProblemError
from weir.proxy.control.snapshots.quotas import quota_of, read_quotas
from weir.quotas import QuotaTable

TOKEN = "correct-horse-battery"  # noqa: S105


def _rules(tmp_path: Path) -> dict[str, Any]:
    """Settings of an endpoint that other machines reach."""
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


H2C = (
    b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAQAAAAA\r\n\r\n"
)
"""A request that becomes HTTP/2, with a window of 0 bytes."""


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


@pytest.mark.parametrize("said", [_h2_get(b"/healthz"), H2C], ids=["HTTP/2", "upgrade"])
def test_http_2_requests_without_a_window_for_the_response_do_not_hide_the_health_page(
    said: bytes, tmp_path: Path
) -> None:
    async def script(stage: Stage) -> None:
        async with AsyncExitStack() as opened:
            for _ in range(endpoint.REQUESTS_MAX):
                stream = await opened.enter_async_context(await trio.open_tcp_stream(HOST, stage.admin))
                await stream.send_all(said)
                with suppress(trio.BrokenResourceError):  # closed
                    await stream.receive_some()  # the request has been read
            status, body, _ = await get(stage.admin, "/healthz")
            assert (status, body) == (200, b"ok\n")

    play_with(script, **_rules(tmp_path))


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
    monkeypatch.setattr(endpoint, "WAITING_MAX", 2)
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
        play_with(script, admin_tls_cert=str(cert), admin_tls_key=str(key), **_rules(tmp_path))
    assert [line["event"] for line in logs if line["log_level"] == "error"] == []


class _Name(str):
    """A name that counts how often names are compared."""

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
