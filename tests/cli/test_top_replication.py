"""`weir top --view replication`: tables, redrawn tables and JSON, asked of a running endpoint."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio
from click.testing import CliRunner, Result
from rich.console import Console

from tests.cli.admin_pages import asked
from tests.cli.run_command import error_line
from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.metrics_page import registry_of, server
from tests.proxy.supervised import NoWorkers
from tests.proxy.throttled_replicas import NOW_MS, quotas, snapshot
from weir.cli.admin_endpoint import AdminError
from weir.cli.exits import DONE
from weir.cli.main import weir
from weir.cli.top.replication import LiveStatusScreen, replica_row
from weir.proxy.admin.api.operation import state_of
from weir.proxy.admin.endpoint import application
from weir.proxy.admin.metrics import Sources
from weir.proxy.admin.readiness import Readiness
from weir.proxy.admin.replication.status import ReplicationStatus
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas.replication.replication_quotas import ReplicationQuotas

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["server"]  # a fixture

TABLES = """\
3 throttled replicas: 1 in sync, 1 copying, 1 held back

broker  role             rate        limit  used
1       leader      293 KiB/s  976.6 KiB/s  30 %
2       follower  195.3 KiB/s  1.907 MiB/s  10 %
3       follower        0 B/s  1.907 MiB/s   0 %

partition  from -> to  state         done    lag         rate  left
orders-0   1 -> 2      copying     25.0 %  15000  195.3 KiB/s  30 s
orders-1   1 -> 3      held back    0.0 %    300        0 B/s     -
orders-2   1 -> 2      in sync    100.0 %      0        0 B/s     -
"""
"""1 MB/s are 976.6 KiB/s. Broker 1 has sent 3 MB in 10 s, and broker 2 has got 2 MB. Of partition 0, 6 MB
are left at 200 kB/s.
"""


class StoppedError(Exception):
    """Raised in a test where a user would press Ctrl-C."""


def app(server: Server, of: ReplicationQuotas | None) -> ASGIApp:
    """Return the admin endpoint of a Weir with these replication quotas, or without replication listeners."""
    sources = Sources(
        server, NoWorkers(), registry_of(), StoreHealth(lambda: 0.0), lambda: NOW_MS, replication=of
    )
    return application(state_of(sources, Readiness(server, trio.Event())))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(weir, ["top", "--view", "replication", *arguments])


def done(server: Server, of: ReplicationQuotas | None, *arguments: str) -> str:
    result = asked(app(server, of), lambda address: run("--admin", address, "--once", *arguments))
    assert result.exit_code == DONE, result.output
    assert result.stderr == ""
    return result.stdout


def watched(
    monkeypatch: pytest.MonkeyPatch, answers: list[ReplicationStatus | AdminError], *arguments: str
) -> Result:
    """Return what the command prints that watches a Weir with these answers, until Ctrl-C."""
    remaining, slept = iter(answers), []

    def answer(*_: object) -> ReplicationStatus:
        found = next(remaining)
        if isinstance(found, AdminError):
            raise found
        return found

    def wait(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == len(answers):
            raise StoppedError

    monkeypatch.setattr("weir.cli.top.replication.ask", answer)
    monkeypatch.setattr("weir.cli.top.replication.sleep", wait)
    result = run("--admin", "weir:9644", "--interval", "1500ms", *arguments)
    assert isinstance(result.exception, StoppedError)
    assert set(slept) == {1.5}
    return result


def test_replication_view_in_a_pipe_is_plain_text(server: Server) -> None:
    assert done(server, quotas()) == TABLES


def test_replication_view_as_json_is_the_page_of_the_admin_endpoint(server: Server) -> None:
    found = json.loads(done(server, quotas(), "--json"))
    assert msgspec.convert(found, ReplicationStatus) == snapshot(quotas(), NOW_MS)
    assert found["brokers"][0] == {
        "node_id": 1,
        "role": "leader",
        "limit": 1e6,
        "rate": 300_000,
        "charged_bytes": 3_000_000,
        "replicas": 2,
    }
    assert found["replicas"][1]["time_left_s"] is None


def test_replication_view_of_a_weir_without_replication_listeners_says_so(server: Server) -> None:
    assert "no replication listeners" in done(server, None)
    assert json.loads(done(server, None, "--json")) == {
        "configured": False,
        "enforced": False,
        "topics": 0,
        "brokers": [],
        "followers": [],
        "replicas": [],
        "hidden": 0,
    }


def test_replication_view_finds_the_admin_endpoint_of_a_configuration(server: Server, tmp_path: Path) -> None:
    def ask(address: str) -> Result:
        config = tmp_path / "weir.toml"
        config.write_text(f'upstream = "a:1"\nadmin = "{address}"\n')
        return run("--once", "--config", str(config))

    assert asked(app(server, quotas()), ask).stdout == TABLES


def test_replication_view_watched_in_a_pipe_prints_a_block_per_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = watched(monkeypatch, [snapshot(quotas(), NOW_MS)] * 2)
    assert result.stdout == f"{TABLES}\n{TABLES}"


def test_replication_view_goes_on_watching_while_weir_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    status = snapshot(quotas(), NOW_MS)
    result = watched(monkeypatch, [status, AdminError("cannot ask weir:9644: connection refused"), status])
    assert result.stdout == f"{TABLES}\n{TABLES}"
    assert result.stderr == "weir: cannot ask weir:9644: connection refused\n"


@pytest.mark.parametrize("watch", [(), ("--once",)])
def test_replication_view_without_an_answer_ends_with_one_line(watch: tuple[str, ...]) -> None:
    address = f"{HOST}:{free_range(1)}"
    assert error_line(run("--admin", address, *watch)) == f"weir: cannot ask {address}: connection refused"


def test_a_topic_name_with_control_characters_cannot_change_the_terminal() -> None:
    replica = msgspec.structs.replace(snapshot(quotas(), NOW_MS).replicas[0], topic="a\x1b[2J\n")
    assert replica_row(replica).replica == "a\\x1b[2J\\n-0"


def on_screen(height: int, *shown: ReplicationStatus | str) -> str:
    """Return what the redrawn screen writes to a terminal of this height: of each status, and each error."""
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=height, color_system=None)
    with LiveStatusScreen(console) as screen:
        for one in shown:
            if isinstance(one, str):
                screen.complain(one)
            else:
                screen.show(one)
    return file.getvalue()
