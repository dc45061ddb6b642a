"""`weir top --once` and `--json`: tables and records of a fake API, access, and errors."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import msgspec
import pytest
import trustme
from click.testing import CliRunner, Result
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.admin.fake_api import BROKERS, ENTITIES, HOSTILE, NOW_MS, FakeApi, calm, entity, served
from tests.cli.admin_pages import asked
from tests.cli.run_command import error_line
from tests.kafka.ports import free_range
from weir.cli.admin_endpoint import AdminError, access_of, ask
from weir.cli.exits import DONE
from weir.cli.main import weir
from weir.proxy.config.config import Settings, parse_address
from weir.proxy.control.snapshots.records import Brokers, Connections, Entities, ErrorDetails, Status

TOKEN = "0123456789abcdef"  # noqa: S105  # of the fake
ESCAPES = "\x1b]0;owned\x07\x1b[2J[red]x[/red]"
STATUS = (
    "Weir weir-1:9092  ready  2 wait  6 conns  1844 req/s  in 3.06MB/s  "
    "out 1.28MB/s  up 4d  1.0.0 before kafka-1:9092"
)
PROBLEM = (
    "! Broker 3 cannot be reached: connection refused (for 1m). Look at the broker and its network. Its "
    "clients are refused, so that they back off."
)


def run(api: FakeApi, *arguments: str, **environment: str) -> Result:
    with served(api) as url:
        admin = url.removeprefix("http://")
        return CliRunner().invoke(weir, ["top", "--admin", admin, *arguments], env=environment)


def printed(api: FakeApi, *arguments: str) -> list[str]:
    result = run(api, *arguments)
    assert result.exit_code == DONE, result.output
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_once_prints_status_problems_and_a_table_with_throttled_entities_first() -> None:
    calm_but_busy = calm("busy", user="zoe", client_id=None, usage=1.4, rate=7e6)
    lines = printed(FakeApi(entities=(*reversed(ENTITIES), calm_but_busy)), "--once")
    assert lines[:3] == [STATUS, PROBLEM, ""]
    names = [line.split("  ")[0] for line in lines[3:]]
    assert names == [
        "entity",
        "user=alice, client-id=etl",
        f"client-id={HOSTILE}",
        "user=zoe",
        "user=carol",
        "user=bob, client-id=reports",
        "user=ops, client-id=topics",
    ]
    cells = [cell.strip() for cell in lines[4].split("  ") if cell]
    assert cells[1:9] == ["produce", "2", "1.31MB/s", "1MB/s", "131%", "████████", "310 ms", "1m"]


def test_json_is_the_records_of_the_api() -> None:
    found = json.loads("\n".join(printed(FakeApi(), "--json")))
    assert msgspec.convert(found["status"], Status) == FakeApi().status
    assert set(msgspec.convert(found["entities"], Entities).entities) == set(ENTITIES)
    assert len(msgspec.convert(found["connections"], Connections).connections) == 6
    assert msgspec.convert(found["brokers"], Brokers).brokers == BROKERS
    assert found["entities"]["now_ms"] == NOW_MS


def test_filter_order_and_shadow_are_asked_of_the_api() -> None:
    api = FakeApi()
    lines = printed(api, "--once", "--shadow", "--filter", "ETL", "--sort", "rate")
    assert [line.split("  ")[0] for line in lines[5:]] == ["user=alice, client-id=etl"]
    assert "request" in lines[5]
    assert api.requests[1] == "GET /api/entities?q=ETL&limit=1000&shadow=true&sort=rate"


def test_names_of_clients_cannot_send_escape_sequences_to_the_terminal() -> None:
    api = FakeApi(entities=(entity("e", client_id=ESCAPES),))
    text = "\n".join(printed(api, "--once"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "client-id=\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]" in text


def test_the_token_is_read_from_a_file_of_the_option_or_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    api = FakeApi(token=TOKEN, private=True)
    assert run(api, "--once", "--admin-token-file", str(file)).exit_code == DONE
    assert run(api, "--once", WEIR_ADMIN_TOKEN_FILE=str(file)).exit_code == DONE
    line = error_line(run(api, "--once"))
    assert line.endswith("needs the right token: name its file in --admin-token-file")
    file.write_text("x" * 20)
    assert error_line(run(api, "--once", "--admin-token-file", str(file))).endswith(
        "needs the right token: name its file in --admin-token-file"
    )


def test_the_token_and_the_address_are_taken_from_the_configuration(tmp_path: Path) -> None:
    token, config = tmp_path / "token", tmp_path / "weir.toml"
    token.write_text(TOKEN)
    with served(FakeApi(token=TOKEN, private=True)) as url:
        admin = url.removeprefix("http://")
        config.write_text(f'upstream = "a:1"\nadmin = "{admin}"\nadmin_token_file = "{token}"\n')
        result = CliRunner().invoke(weir, ["top", "--once", "--config", str(config)])
        by_variable = CliRunner().invoke(
            weir, ["top", "--once", "--admin-token-file", str(token)], env={"WEIR_ADMIN": admin}
        )
    assert result.exit_code == DONE, result.output
    assert by_variable.exit_code == DONE, by_variable.output


def test_a_weir_that_does_not_answer_is_one_line_and_exit_code_2() -> None:
    port = free_range(1)
    line = error_line(CliRunner().invoke(weir, ["top", "--once", "--admin", f"127.0.0.1:{port}"]))
    assert line == f"weir: cannot ask 127.0.0.1:{port}: connection refused"
    assert error_line(run(FakeApi(failing=True), "--json")).endswith("status 503: the fake API fails")


def test_tls_with_a_trusted_ca_and_a_line_for_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = trustme.CA(), trustme.CA()
    files = [tmp_path / f"{name}.pem" for name in ("trusted", "other")]
    for authority, file in zip(authorities, files, strict=True):
        authority.cert_pem.write_to_path(str(file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authorities[0].issue_cert("127.0.0.1").configure_cert(context)

    def get(where: str) -> None:
        address = parse_address(where, "admin")
        monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
        access = access_of(f"https://{where}", None, Settings())
        assert ask(address, "/", {}, ErrorDetails, access).status == 418
        monkeypatch.setenv("SSL_CERT_FILE", str(files[1]))
        access = access_of(f"https://{where}", None, Settings())
        with pytest.raises(AdminError, match=r"cannot ask 127.0.0.1:\d+: .*certificate.*SSL_CERT_FILE"):
            ask(address, "/", {}, ErrorDetails, access)
        with pytest.raises(AdminError):
            ask(address, "/", {}, ErrorDetails)

    details = JSONResponse({"title": "", "status": 418, "detail": ""})
    asked(Starlette(routes=[Route("/", lambda _request: details)]), get, context)


def test_the_program_needs_a_terminal() -> None:
    pytest.importorskip("textual")
    assert error_line(run(FakeApi())) == "weir: weir top needs a terminal: use --once or --json in a pipe"
