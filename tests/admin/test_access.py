"""Who may read and change at the admin endpoint: the token, client certificates, the Host header."""

from __future__ import annotations

import http.client
import ssl
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from structlog.testing import capture_logs

from tests.admin.stage import Stage, asked, get, play_with
from tests.kfake.cluster import HOST
from tests.proxy import certificates
from tests.proxy.stage import LONG_S, until
from weir.cli.main import weir
from weir.proxy.admin import refusals
from weir.proxy.admin.access import Token
from weir.proxy.admin.places import REQUESTS_MAX
from weir.proxy.admin.refusals import ADDRESSES_MAX, DELAY_S_MAX, FORGET_S, WrongTokens
from weir.proxy.config import config
from weir.proxy.config.admin_access import is_loopback
from weir.proxy.config.config import ConfigError

TOKEN = "correct-horse-battery"  # noqa: S105
WRONG = "Incorrect-horse-batte"
READABLE = ("/metrics", "/api/status", "/api/entities", "/openapi.json", "/replication")


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_DELAY_S", 0.0)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def status_of(stage: Stage, path: str, method: str = "GET", **headers: str) -> int:
    status, _body, _headers = await asked(stage.admin, method, path, headers)
    return status


OFF_LOOPBACK: dict[str, Any] = {"admin": "0.0.0.0:9644"}
"""The rules are those of this address; the endpoint of the stage listens elsewhere."""


def test_off_loopback_all_pages_but_health_need_the_token(token_file: Path) -> None:
    async def script(stage: Stage) -> None:
        await stage.start()
        for path in READABLE:
            assert await status_of(stage, path) == 401, path
            assert await status_of(stage, path, **bearer(WRONG)) == 401, path
            assert await status_of(stage, path, authorization=f"Basic {TOKEN}") == 401, path
            assert await status_of(stage, path, **bearer(TOKEN)) == 200, path
        for path in ("/healthz", "/readyz"):
            assert await status_of(stage, path) == 200, path
        assert await status_of(stage, "/no-such-page") == 401
        _, body, headers = await get(stage.admin, "/api/status")
        assert headers["www-authenticate"].startswith("Bearer")
        assert headers["content-type"] == "application/problem+json"
        assert TOKEN.encode() not in body

    play_with(script, admin_token_file=str(token_file), **OFF_LOOPBACK)


def test_on_loopback_reading_needs_no_token_and_changing_does(token_file: Path) -> None:
    change = {"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 1}}

    async def script(stage: Stage) -> None:
        for path in READABLE:
            assert await status_of(stage, path) == 200, path
        assert await status_of(stage, "/api/status", **bearer(WRONG)) == 401
        assert (await stage.post("/api/quotas", change))[0] == 403
        assert (await stage.post("/api/quotas", change, WRONG))[0] == 401
        assert (await stage.post("/api/quotas", {**change, "dry_run": True}, TOKEN))[0] == 200
        assert (await stage.post("/api/quotas/preview", change))[0] == 200

    play_with(script, admin_token_file=str(token_file))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9644", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9644", 200),
        ("[::1]", 200),
        ("evil.example.com", 403),
        ("evil.example.com:9644", 403),
        ("localhost.evil.example.com", 403),
        ("10.0.0.7:9644", 403),
        ("", 403),
    ],
)
def test_on_loopback_a_host_header_of_another_machine_is_refused(host: str, status: int) -> None:
    async def script(stage: Stage) -> None:
        assert await status_of(stage, "/api/status", host=host) == status
        assert await status_of(stage, "/metrics", host=host) == status
        assert await status_of(stage, "/healthz", host=host) == 200

    play_with(script)


def test_refused_requests_are_counted_and_wrong_tokens_leave_a_line_a_second(token_file: Path) -> None:
    async def script(stage: Stage) -> None:
        await stage.start()
        for _ in range(20):
            assert await status_of(stage, "/api/status", **bearer(WRONG)) == 401
        assert await status_of(stage, "/api/status") == 401
        _, metrics, _ = await get(stage.admin, "/metrics", **bearer(TOKEN))
        found = dict(
            line.split(" ") for line in metrics.decode().splitlines() if "admin_requests" in line[:19]
        )
        assert found == {
            'weir_admin_requests_refused_total{reason="wrong_token"}': "20.0",
            'weir_admin_requests_refused_total{reason="no_token"}': "1.0",
            'weir_admin_requests_refused_total{reason="host"}': "0.0",
        }

    with capture_logs() as logs:
        play_with(script, admin_token_file=str(token_file), **OFF_LOOPBACK)
    lines = [line for line in logs if line["event"] == "wrong admin token"]
    assert 1 <= len(lines) < 20
    assert {line["log_level"] for line in lines} == {"warning"}
    assert all(line["client"].startswith(f"{HOST}:") for line in lines)
    assert WRONG not in str(logs)


def test_a_delayed_wrong_token_delays_nobody_else(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_DELAY_S", 2 * LONG_S)
    monkeypatch.setattr(refusals, "DELAY_S_MAX", 2 * LONG_S)

    async def script(stage: Stage) -> None:
        await stage.start()
        async with AsyncExitStack() as opened:
            for _ in range(REQUESTS_MAX + 1):
                guess = await opened.enter_async_context(await trio.open_tcp_stream(HOST, stage.admin))
                head = f"GET /api/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRONG}\r\n\r\n"
                await guess.send_all(head.encode())
            await until(lambda: stage.state.sources.refused["wrong_token"] == REQUESTS_MAX + 1)
            assert await status_of(stage, "/api/status", **bearer(TOKEN)) == 200
            assert await status_of(stage, "/api/status") == 401
            assert await status_of(stage, "/healthz") == 200

    play_with(script, admin_token_file=str(token_file), **OFF_LOOPBACK)


def test_the_delay_of_wrong_tokens_grows_by_address_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_DELAY_S", 0.25)
    wrong = WrongTokens()
    assert [wrong.delay_s("10.0.0.1", 7.0) for _ in range(5)] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert {wrong.delay_s("10.0.0.1", 8.0) for _ in range(2000)} == {DELAY_S_MAX}
    assert wrong.delay_s("10.0.0.2", 8.0) == 0.25, "another address"
    assert wrong.delay_s("10.0.0.1", 8.0 + FORGET_S) == DELAY_S_MAX
    assert wrong.delay_s("10.0.0.1", 9.0 + 2 * FORGET_S) == 0.25
    for number in range(ADDRESSES_MAX):
        wrong.delay_s(f"10.1.{number >> 8}.{number & 255}", 9.0 + 2 * FORGET_S)
    assert wrong.delay_s("10.0.0.1", 9.0 + 2 * FORGET_S) == 0.25, "memory is bounded"


def test_the_token_is_compared_by_hashes_of_one_length_in_constant_time(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, compared = Token(token_file), []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((len(given), len(known)))
        return given == known

    monkeypatch.setattr("weir.proxy.admin.access.hmac.compare_digest", compare)
    assert [token.is_(text) for text in (TOKEN, WRONG, "", TOKEN[:-1], "x" * 10_000)] == [True] + 4 * [False]
    assert set(compared) == {(32, 32)}


def test_a_changed_token_is_used_and_an_unusable_one_is_not(token_file: Path) -> None:
    token = Token(token_file)

    async def looked() -> None:
        for _ in range(2):  # a change counts once it has lasted from one look to the next
            await token.look()

    with capture_logs() as logs:
        token_file.write_text("another-good-token-1")
        trio.run(looked)
        assert (token.is_("another-good-token-1"), token.is_(TOKEN)) == (True, False)
        token_file.write_text("short")
        trio.run(looked)
        assert token.is_("another-good-token-1")
        assert token.outage
        token_file.write_text("a-third-good-token-1")
        trio.run(looked)
        assert not token.outage
    assert [line["event"] for line in logs] == [
        "changed admin token in force",
        "changed admin token refused, the old one stays in force",
        "admin token can be used again",
        "changed admin token in force",
    ]
    assert "short" not in str(logs[1]["error"]).removeprefix(f"admin_token_file {token_file}: shorter")


# Configuration


@pytest.mark.parametrize("admin", [":9644", "0.0.0.0:9644", "[::]:9644", "weir.example.com:9644"])
def test_an_admin_address_off_loopback_without_a_token_stops_the_start(admin: str) -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines: set admin_token_file"):
        config.load(None, {"upstream": "a:1", "admin": admin})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "shorter than 16"),
        (b"fifteen-chars-x", "shorter than 16"),
        (b"two words are no token", "one line of ASCII"),
        (b"two-lines-in-a-file\nare-no-token", "one line of ASCII"),
        (b"not-ascii-\xff-not-ascii", "is not utf-8"),
        (b"x" * 5000, "larger than 4096 bytes"),
    ],
)
def test_a_token_file_that_cannot_be_used_stops_the_start(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as refused:
        Token(file)
    assert content.decode("latin-1") not in str(refused.value) or not content


def test_a_missing_token_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read it: no such file"):
        Token(tmp_path / "missing")


def test_an_admin_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be CERTIFICATE or CERTIFICATE,KEY"):
        config.load(None, {"upstream": "a:1", "admin": "127.0.0.1:9644", "admin_tls_cert": ",file.pem"})


def test_only_loopback_hosts_count_as_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "LocalHost")] == [True] * 4
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "x")))


# TLS


def test_tls_needs_a_token_and_is_no_http(tmp_path: Path, token_file: Path) -> None:
    cert, key = certificates.write_pair(tmp_path, HOST)
    foreign = certificates.write_ca(tmp_path, "others")
    options: dict[str, Any] = {
        "admin_tls_cert": f"{cert},{key}",
        "admin_token_file": str(token_file),
        **OFF_LOOPBACK,
    }

    def ask(port: int, context: ssl.SSLContext, method: str, path: str, **headers: str) -> int:
        connection = http.client.HTTPSConnection(HOST, port, timeout=LONG_S, context=context)
        try:
            connection.request(method, path, b"{}" if method == "POST" else None, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    async def script(stage: Stage) -> None:
        async def status(context: ssl.SSLContext, path: str, method: str = "GET", **headers: str) -> int:
            return await trio.to_thread.run_sync(lambda: ask(stage.admin, context, method, path, **headers))

        async def health(cert: Path | str) -> int:
            variables = {"WEIR_ADMIN": f":{stage.admin}", "WEIR_ADMIN_TLS_CERT": str(cert)}
            command = partial(CliRunner().invoke, weir, ["check", "--running"], env=variables)
            return (await trio.to_thread.run_sync(command)).exit_code

        assert [await health(cert) for cert in (cert, foreign, "")] == [0, 1, 1]
        plain = certificates.client_context()
        assert await status(plain, "/healthz") == 200
        assert await status(plain, "/api/status") == 401
        assert await status(plain, "/api/status", **bearer(TOKEN)) == 200
        async with await trio.open_tcp_stream(HOST, stage.admin) as garbled:
            await garbled.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert await status(plain, "/healthz") == 200

    play_with(script, **options)
