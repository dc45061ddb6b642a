"""The start of a worker: from the supervisor's configuration, not from files that may be broken by now."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.proxy.certificates import HOST, write_ca, write_pair
from weir.proxy import run
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.file import FileStore
from weir.proxy.control.stores.quota_manager import QuotaManager
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.net.drivers import monotonic_us
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server
from weir.proxy.workers import worker
from weir.proxy.workers.exit_codes import REPLACED
from weir.proxy.workers.link import Link
from weir.proxy.workers.messages import Start
from weir.proxy.workers.pool import Pool
from weir.proxy.workers.quota_follower import message_of
from weir.proxy.workers.worker import Worker, config_of
from weir.quotas import QuotaTable

UPSTREAM = {"upstream": "broker:9092"}
COSTS = "[apis.Produce]\nus = 77\n"


def start_of(given: config.Config) -> Start:
    """The message to a new worker of a supervisor that has read its files."""
    for files in given.tls.files:
        files.keeps_contents = True
        files.load()
    contents = [files.in_force for files in given.tls.files]
    return Start(given.settings, given.request_time.costs, contents, 0, "weir-a", workers=1)


def test_a_worker_starts_although_every_file_was_broken_since_the_supervisor_read_it(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    ca, costs, password = write_ca(tmp_path), tmp_path / "costs.toml", tmp_path / "password"
    costs.write_text(COSTS)
    password.write_text("0123456789abcdef")
    files = {"tls_cert": f"{cert},{key}", "upstream_tls": ca, "request_costs": costs}
    options = {key: str(path) for key, path in files.items()} | {
        "upstream_sasl_mechanism": "PLAIN",
        "upstream_sasl_username": "weir",
        "upstream_sasl_password_file": str(password),
        "usage_share_topic": "__weir_usage",
        "share_key_file": str(password),
    }
    start = start_of(config.load(None, {**UPSTREAM, **options}))
    for path in (cert, ca, costs):
        path.write_text("broken")
    for path in (key, password):
        path.unlink()
    found = config_of(start)
    assert found.request_time.costs == start.costs
    assert found.own_client_id == start.own_client_id
    assert found.request_time.costs.apis["Produce"].us == 77
    assert [isinstance(each.context, ssl.SSLContext) for each in found.tls.files] == [True, True]


def test_a_context_made_of_another_processs_files_follows_later_changes(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    given = config.load(None, {**UPSTREAM, "tls_cert": f"{cert},{key}"})
    start = start_of(given)
    key.write_text("broken")
    (files,) = config_of(start).tls.files
    kept = files.context

    async def look() -> None:
        for _ in range(2):  # a change counts when it has lasted from one look to the next
            await files.look()

    trio.run(look)
    assert (bool(files.outage), files.context) == (True, kept)
    write_pair(tmp_path, HOST)
    trio.run(look)
    assert not files.outage
    assert files.context is not kept


def test_files_in_force_are_those_that_were_last_usable(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    (files,) = config.load(None, {**UPSTREAM, "tls_cert": f"{cert},{key}"}).tls.files
    files.keeps_contents = True
    files.load()
    assert files.in_force is not None
    before = files.in_force.contents
    assert before == (cert.read_bytes(), key.read_bytes())
    key.write_text("broken")

    async def look() -> None:
        for _ in range(2):
            await files.look()

    trio.run(look)
    assert files.in_force.contents == before


def test_a_worker_gets_the_contents_of_key_files(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST)
    options: dict[str, object] = {"tls_cert": f"{cert},{key}"}
    pool = started(options)
    (start, _quotas) = pool._first(0)
    assert isinstance(start, Start)
    (files,) = start.tls
    assert files is not None
    assert files.contents == (cert.read_bytes(), key.read_bytes())
    (adopted,) = config_of(start).tls.files
    assert adopted.in_force is None


def test_a_worker_reads_the_files_where_no_content_can_be_read_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = write_pair(tmp_path, HOST)
    start = start_of(config.load(None, {**UPSTREAM, "tls_cert": f"{cert},{key}"}))

    def fail(_name: str) -> int:
        raise OSError

    monkeypatch.setattr(os, "memfd_create", fail)
    (files,) = config_of(start).tls.files
    assert isinstance(files.context, ssl.SSLContext)


def test_weir_does_not_start_with_a_broken_certificate(tmp_path: Path) -> None:
    """Its worker would wait for ever."""
    cert, key = write_pair(tmp_path, HOST)
    cert.write_text("broken")
    with pytest.raises(ConfigError, match="tls_cert"):
        started({"tls_cert": f"{cert},{key}"})


@pytest.mark.trio
async def test_a_worker_collects_garbage_like_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    collects = trio.Event()

    async def collect() -> None:
        collects.set()

    async def wait(_worker: Worker) -> None:
        await collects.wait()

    monkeypatch.setattr(worker, "collect_garbage", collect)
    monkeypatch.setattr(Worker, "run", wait)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link, reactor = Link(ours), Reactor(monotonic_us)
    link.post(start_of(config.load(None, UPSTREAM)))
    link.post(message_of(QuotaTable(), in_shadow=False))
    with trio.fail_after(20):
        await worker._main(theirs, reactor)
    reactor.close()
    theirs.close()
    link.close()


def started(options: dict[str, object]) -> Pool:
    async def main() -> Pool:
        given = config.load(None, {"upstream": f"{HOST}:1", **options})
        server = Server(given, QuotaRegistry(QuotaTable()))
        health, table = StoreHealth(lambda: 0.0), QuotaTable()
        manager = QuotaManager(FileStore(None), server.quotas, table, frozenset(), health, server.supervisor)
        return run._pool(given, server, manager, None, None)

    return trio.run(main)


def test_auto_makes_a_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: range(8))
    pool = started({"workers": "auto"})
    assert len(pool.handles) == 8


@pytest.mark.parametrize("arguments", [["0.0.1"], []])
def test_a_worker_of_another_version_than_its_supervisor_ends_with_an_exit_code_of_its_own(
    arguments: list[str],
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        found = subprocess.run(
            [sys.executable, "-m", "weir.proxy.workers", str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert (found.returncode, found.stderr) == (REPLACED, b"")
