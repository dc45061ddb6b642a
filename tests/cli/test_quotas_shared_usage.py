"""`weir quotas explain --admin`: what other Weirs have reported, asked of a running endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.cli.admin_pages import asked
from tests.cli.quotas_command import done
from tests.proxy.metrics_page import server
from tests.proxy.supervised import NoWorkers
from weir.proxy.admin.api.operation import state_of
from weir.proxy.admin.endpoint import application
from weir.proxy.admin.metrics import Sources
from weir.proxy.admin.readiness import Readiness
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas import parse
from weir.quotas.sharing.others import OthersCharge
from weir.quotas.sharing.report import limiter_number
from weir.quotas.table.entities import Tags

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["server"]  # a fixture

FILE = """\
[[quota]]
user = "alice"
producer_byte_rate = 1000000
request_percentage = 40
controller_mutation_rate = 2
scope = "cluster"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "quotas.toml").write_text(FILE)
    path = tmp_path / "weir.toml"
    path.write_text('upstream = "a:1"\nquotas = "quotas.toml"\nusage_share_topic = "__weir_usage"\n')
    return path


def weir(server: Server) -> ASGIApp:
    """The pages of one at which Alice has used 2 MiB, when other Weirs had reported 1 MiB and 1.5 s."""
    registry = QuotaRegistry(parse(FILE))

    def refuse() -> Any:
        raise AssertionError("the topic is not needed")

    sharing = UsageSharing(registry, refuse, "here", 1, lambda: 0)
    sharing.join()
    sharing.blindness.heard(2, 0)
    sharing.weirs = 2
    ledger = registry.of(1).ledger("alice", "app", 0)
    ledger.charge_produce(2 * 2**20, 0)
    sharing.limiters.look(0)
    numbers = {kind: limiter_number((None, f"cluster {kind}", False), Tags("alice", "")) for kind in REPORTED}
    sharing.limiters.absorb({numbers[kind]: [OthersCharge(0, units)] for kind, units in REPORTED.items()}, 0)
    sources = Sources(server, NoWorkers(), registry, StoreHealth(lambda: 0.0), lambda: 0, sharing=sharing)
    return application(state_of(sources, Readiness(server, trio.Event())))


REPORTED = {"produce": 2.0**20, "request": 1_500_000.0}
"""Units that others have reported, by quota: bytes, and microseconds."""


def test_explain_shows_what_was_used_here_and_what_other_weirs_reported(server: Server, config: Path) -> None:
    def ask(address: str) -> str:
        return done(
            "explain", "--config", str(config), "--user", "alice", "--client-id", "app", "--admin", address
        )

    found = asked(weir(server), ask).splitlines()
    assert [line.strip() for line in found if "other Weirs" in line and "reported" in line] == [
        "all brokers: 2 MiB used here, 1 MiB reported by other Weirs",
        "all brokers: 0.000 s used here, 1.500 s reported by other Weirs",
    ]


def test_explain_in_json_has_the_shared_usage(server: Server, config: Path) -> None:
    def ask(address: str) -> str:
        return done("explain", "--config", str(config), "--user", "alice", "--admin", address, "--json")

    found = json.loads(asked(weir(server), ask))["shared_usage"]
    assert found["weirs"] == 2
    assert [(each["key"], each["own"], each["others"]) for each in found["budgets"]] == [
        ("producer_byte_rate", 2 * 2**20, 2**20),
        ("request_percentage", 0, 1.5),
    ]
