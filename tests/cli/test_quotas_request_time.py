"""`weir quotas explain --admin`: which APIs a client's request time went to, asked of a running endpoint."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.cli.admin_pages import asked
from tests.cli.quotas_command import done, failed
from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.metrics_page import server
from tests.proxy.supervised import NoWorkers
from weir.cli import admin_endpoint
from weir.cli.exits import USAGE
from weir.protocol.api import ApiKey
from weir.proxy.addresses import Address
from weir.proxy.admin.api.operation import state_of
from weir.proxy.admin.endpoint import application
from weir.proxy.admin.metrics import Sources
from weir.proxy.admin.readiness import Readiness
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas import parse
from weir.quotas.storage import BrokerStorage

__all__ = ["server"]  # a fixture

FILE = """\
[[quota]]
user = "alice"
request_percentage = 40

[[quota]]
user = "alice"
client_id = "app"
mode = "shadow"
request_percentage = 20
"""
NOW_MS = 400


@pytest.fixture
def registry() -> QuotaRegistry:
    """Alice has used 5.2 s of a thread within 10.4 s, half of it with her app: 50 and 25 %."""
    registry = QuotaRegistry(parse(FILE))
    charge(registry, "app", ApiKey.PRODUCE, 1_950_000, 0)
    charge(registry, "app", ApiKey.METADATA, 650_000, 0)
    charge(registry, "other", ApiKey.FETCH, 2_600_000, NOW_MS)
    return registry


def charge(
    registry: QuotaRegistry, client_id: str, api_key: int, us: float, now_ms: int, node_id: int | None = 1
) -> None:
    quotas = registry.of(node_id)
    quotas.ledger("alice", client_id, now_ms).charge_request(api_key, us, now_ms)


def weir(server: Server, registry: QuotaRegistry) -> ASGIApp:
    """The pages of one that runs."""
    sources = Sources(server, NoWorkers(), registry, StoreHealth(lambda: 0.0), lambda: NOW_MS)
    return application(state_of(sources, Readiness(server, trio.Event())))


def explained(file: Path, client_id: str, *arguments: str) -> Callable[[str], str]:
    """The part about request time of what `explain --admin` prints."""

    def ask(address: str) -> str:
        options = ("--quotas", str(file), "--user", "alice", "--client-id", client_id)
        out = done("explain", *options, "--admin", address, *arguments).replace(address, "ADDRESS")
        (part,) = [part for part in out.split("\n\n") if part.startswith("request_percentage")]
        return part[part.find("  request time so far") :]

    return ask


def test_explain_shows_request_time_by_api_broker_and_mode(
    server: Server, registry: QuotaRegistry, file: Path
) -> None:
    """In shadow 2.6 s within 10 s are 26 %; the limit is 20, and nobody is told to wait more than 1 s."""
    would = "would have been throttled once, 1.0 s"
    assert asked(weir(server, registry), explained(file, "app")).splitlines() == [
        "  request time so far, as Weir at ADDRESS estimates it:",
        "    broker 1: 5.200 s, now 50.00 of 40 % of a thread, throttled once, 1.0 s",
        "      Fetch     2.600 s  50.0 %",
        "      Produce   1.950 s  37.5 %",
        "      Metadata  0.650 s  12.5 %",
        f"    broker 1, in shadow: 2.600 s, now 25.00 of 20 % of a thread, {would}",
        "      Produce   1.950 s  75.0 %",
        "      Metadata  0.650 s  25.0 %",
    ]


def test_explain_says_whether_a_storage_budget_is_over(server: Server, file: Path) -> None:
    mark = 'topic_prefix = "pay."\nstored_bytes_max = 1000\nover_byte_rate = 64\n'
    file.write_text(f"[[quota]]\n{mark}")
    options, budgets = ("--quotas", str(file), "--topic", "pay.a"), server.storage_reader.budgets
    assert "applies only while its storage budget is over: give --admin" in done("explain", *options)
    budgets.use(parse(file.read_text()))
    for size, words in (
        (1000, "does not apply now"),
        (1001, "applies now: stored_bytes_max of topic prefix"),
    ):
        budgets.read(1, BrokerStorage({"pay.a": size}, None), 0)
        budgets.judge(0)
        for more, found in (((), words), (("--json",), f'"applies_now": {str(size > 1000).lower()}')):
            ask = partial(lambda more, at: done("explain", *options, "--admin", at, *more), more)
            assert found in asked(weir(server, QuotaRegistry(parse(""))), ask)


def test_explain_prints_request_time_as_json(server: Server, registry: QuotaRegistry, file: Path) -> None:
    charge(registry, "other", 99, 1_000_000, NOW_MS, node_id=0)
    charge(registry, "other", ApiKey.FETCH, 0, NOW_MS, node_id=None)

    def ask(address: str) -> dict[str, Any]:
        options = ("--quotas", str(file), "--user", "alice", "--client-id", "other", "--json")
        time: dict[str, Any] = json.loads(done("explain", *options, "--admin", address))["request_time"]
        assert time["admin"] == address
        return time

    found = asked(weir(server, registry), ask)["budgets"]
    assert [(budget["broker"], budget["mode"]) for budget in found] == [
        ("0", "enforce"),
        ("1", "enforce"),
        ("unknown", "enforce"),
    ]
    assert found[0] == {
        "broker": "0",
        "mode": "enforce",
        "user": "alice",
        "client_id": "",
        "client_id_prefix": "",
        "seconds": 1.0,
        "rate": pytest.approx(10.0),
        "limit": 40.0,
        "throttles": 0,
        "throttle_seconds": 0.0,
        "apis": [{"api": "api_99", "seconds": 1.0, "percent": 100.0}],
    }
    assert found[2]["apis"] == [{"api": "Fetch", "seconds": 0.0, "percent": 0.0}]


def test_explain_maps_an_empty_client_id_as_the_running_weir_does(server: Server) -> None:
    registry = QuotaRegistry(
        parse('[[quota]]\nclient_id = "<default>"\nrequest_percentage = 5\n'), unnamed="<empty>"
    )
    quotas = registry.of(1)
    quotas.ledger("ANONYMOUS", "", 0).charge_request(ApiKey.FETCH, 1e6, 0)
    answer = asked(
        weir(server, registry),
        lambda address: admin_endpoint.ask(_parsed(address), "/request-time", {}, dict),
    )
    assert [budget["client_id"] for budget in answer["budgets"]] == ["<empty>"]


def _parsed(address: str) -> Address:
    host, _, port = address.rpartition(":")
    return Address(host, int(port))


def test_explain_works_if_the_configured_admin_endpoint_does_not_answer(file: Path) -> None:
    port = free_range(1)
    config = file.with_name("weir.toml")
    config.write_text(f'upstream = "a:1"\nquotas = "quotas.toml"\nadmin = "localhost:{port}"\n')
    out = done("explain", "--config", str(config), "--user", "alice")
    assert (
        f"  which APIs spend it: cannot ask localhost:{port}: connection refused; "
        "give --admin HOST:PORT of a running Weir\n"
    ) in out
    assert json.loads(done("explain", "--config", str(config), "--json"))["request_time"] is None


def test_explain_asks_the_configured_admin_endpoint(
    server: Server, registry: QuotaRegistry, file: Path
) -> None:
    def ask(address: str) -> str:
        config = file.with_name("weir.toml")
        config.write_text(f'upstream = "a:1"\nquotas = "quotas.toml"\nadmin = "{address}"\n')
        return done("explain", "--config", str(config), "--user", "alice")

    assert "    broker 1: 5.200 s, now 50.00 of 40 % of a thread" in asked(weir(server, registry), ask)


def _answer(answer: Response) -> Starlette:
    async def page(_request: Request) -> Response:
        return answer

    return Starlette(routes=[Route("/request-time", page)])


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (Starlette(), "answers /request-time with status 404: is it Weir, of this release?"),
        (_answer(PlainTextResponse("no")), "answers /request-time as no Weir of this release does"),
        (_answer(Response(b'{"user": "\xff"}')), "answers /request-time as no Weir of this release does"),
        (_answer(Response(b'{"user": "a", "client_id": ""}')), "as no Weir of this release does"),
        (_answer(Response(b"[" * 100_000)), "answers /request-time as no Weir of this release does"),
    ],
)
def test_explain_reports_a_wrong_response_of_the_admin_endpoint_in_one_line(
    app: ASGIApp, words: str, file: Path
) -> None:
    assert words in asked(app, lambda address: failed(USAGE, *_explain(file, address)))


def _explain(file: Path, address: str) -> tuple[str, ...]:
    return ("explain", "--quotas", str(file), "--admin", address)


def test_explain_gives_up_on_a_silent_admin_endpoint(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_endpoint, "PATIENCE_S", 0.05)
    with socket.create_server((HOST, 0)) as mute:
        address = "{}:{}".format(*mute.getsockname())
        assert failed(USAGE, *_explain(file, address)) == f"no answer from {address} within 0.05 s"


@pytest.mark.parametrize(
    ("text", "why"),
    [("weir", "must be HOST:PORT"), ("weir:0", "its port must be 1 to 65535"), ("", "must be HOST:PORT")],
)
def test_explain_refuses_a_malformed_admin_address(text: str, why: str, file: Path) -> None:
    assert failed(USAGE, *_explain(file, text)).startswith(f"--admin is {text!r}, {why}")
