"""`weir run` with several workers: users notice no difference from one process."""

from __future__ import annotations

import json
import os
import resource
import signal
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.cli.cluster import WAIT_S, Producer, cluster, produced
from tests.cli.run_process import Weir, running
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST
from tests.matrix import first_core
from tests.proxy.certificates import client_context, write_pair
from tests.proxy.usage_rigs import text_of
from weir.usage import TraceRecord, UsageRecord

BROKERS = 3
PATIENCE_S = 60
"""Weir looks at its files every few seconds."""


@contextmanager
def running_workers(workers: str, *options: str) -> Iterator[tuple[Weir, list[int]]]:
    """Weir with workers, before three brokers, and its ports for them."""
    port = free_range(1 + BROKERS)
    with cluster(BROKERS) as (upstream, *_):
        places = ["--upstream", f"{HOST}:{upstream}", "--listen", f"{HOST}:{port}"]
        places += ["--broker-ports", f"{port + 1}-{port + BROKERS}"]
        with running(*places, "--set", f"workers={workers}", *options) as weir:
            yield weir, [port + 1 + node for node in range(BROKERS)]


def stop(weir: Weir) -> None:
    weir.process.send_signal(signal.SIGTERM)
    assert weir.process.wait(PATIENCE_S) == 0


def recorded(directory: Path, kind: str) -> list[bytes]:
    return [line for path in directory.glob(f"{kind}-*.jsonl.zst") for line in text_of(path).splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["2", "1", "auto"])
def test_usage_records_and_traces_are_those_of_the_wire_with_any_number_of_workers(
    tmp_path: Path, workers: str
) -> None:
    usage = (
        "--set",
        f"usage={tmp_path}",
        "--set",
        "usage_interval_ms=1000",
        "--set",
        "usage_trace_share=1",
    )
    with running_workers(workers, *usage) as (weir, ports):
        weir.logged("recording usage")
        clients = [Producer(port, f"app-{port - ports[0]}") for port in ports]
        for _ in range(3):
            for client in clients:
                client.produce(500)
        stop(weir)
        for client in clients:
            client.close()
    records = [msgspec.json.decode(line, type=UsageRecord) for line in recorded(tmp_path, "usage")]
    traces = [msgspec.json.decode(line, type=TraceRecord) for line in recorded(tmp_path, "trace")]
    expected = {(node, f"app-{node}"): (3, 3 * len(produced(500, "app-0"))) for node in range(BROKERS)}
    assert {(r.broker, r.client_id): (r.requests, r.bytes_in) for r in summed(records)} == expected
    assert len({(r.broker, r.client_id, r.api, r.time_ms) for r in records}) == len(records)
    assert all(r.interval_ms <= 1100 and r.instance for r in records)
    assert len({r.connection for r in traces}) == BROKERS
    assert sorted(r.broker for r in traces) == sorted([0, 1, 2] * 3)
    assert {r.instance for r in traces} == {r.instance for r in records}
    begin_ms, end_ms = min(r.time_ms for r in records), max(r.time_ms + r.interval_ms for r in records)
    end_ms += 1000  # a worker hears later of the end of an interval, which then includes requests after it
    assert all(begin_ms <= r.time_ms <= r.answered_ms <= end_ms for r in traces)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_restart_gives_no_client_its_quota_again_with_any_number_of_workers(
    tmp_path: Path, workers: str
) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text(
        '[[quota]]\nclient_id = "each"\nproducer_byte_rate = 1\n'
        '[[quota]]\nclient_id = "whole"\nproducer_byte_rate = 1\nscope = "cluster"\n'
    )
    options = ["--quotas", str(quotas), "--set", f"state_dir={tmp_path / 'state'}"]
    options += [
        "--set",
        "quota_window_size_seconds=3600",
    ]  # no charge is forgotten, however slow the machine is
    with running_workers(workers, *options) as (weir, ports):
        weir.logged("listening")
        for client in ("each", "whole"):
            assert told(ports[1], client, 20_000) == 0
            while told(ports[1], client, 20_000) == 0:  # the other worker hears of usage within 20 ms
                pass
        stop(weir)
    with running_workers(workers, *options) as (weir, ports):
        weir.logged("listening")
        assert told(ports[0], "each", 1) == 0
        assert told(ports[1], "each", 1) > 0
        assert told(ports[2], "whole", 1) > 0
        stop(weir)


@pytest.mark.parametrize(
    ("workers", "at_once"), first_core([("2", False), ("2", True), ("1", False), ("1", True)])
)
def test_the_log_says_how_many_connections_ended_and_were_cut_when_weir_stopped(
    tmp_path: Path, workers: str, at_once: bool
) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient_id = "muted"\nproducer_byte_rate = 1\n')
    options = ["--quotas", str(quotas), "--set", f"drain_timeout_s={60 if at_once else 0.3}"]
    with running_workers(workers, *options) as (weir, ports):
        weir.logged("listening")
        muted = Producer(ports[0], "muted")
        assert muted.produce(20_000) > 0
        muted.begin(500)
        idle = [muted, *(Producer(port, "idle") for port in ports[1:])]
        half = [Producer(port, "half") for port in ports[:2]]
        for client in idle[1:] + half:
            client.produce(500)
        for client in half:  # the first request's answer shows that the beginning of the second was read
            client.exchange(produced(500, "half") + produced(500, "half")[:100])
        weir.process.send_signal(signal.SIGTERM)
        draining = weir.logged("draining")
        assert (draining["connections"], draining["level"]) == (5, "info")
        if at_once:
            for client in idle:
                client.wait_closed()
            weir.process.send_signal(signal.SIGTERM)
        stopped = weir.logged("stopped")
        ended, cut = stopped["ended"], stopped["cut"]
        if at_once:  # the workers' news of ended connections may come after the signal
            assert (ended, cut) in {(3, 2), (2, 3), (1, 4), (0, 5)}
        else:
            assert (ended, cut) == (3, 2)
            assert stopped["unforwarded_bytes"] == len(produced(500, "muted")) + 2 * 100
        assert stopped["level"] == "info"
        assert weir.process.wait(120) == 0
    for client in idle + half:
        client.close()


def test_changed_quotas_and_settings_come_into_force_at_all_workers_on_sighup(tmp_path: Path) -> None:
    quotas, configuration = tmp_path / "quotas.toml", tmp_path / "weir.toml"
    quotas.write_text("")
    configuration.write_text("")
    with running_workers("2", "--quotas", str(quotas), "--config", str(configuration)) as (weir, ports):
        weir.logged("listening")
        assert [told(port, "before", 20_000) for port in ports] == [0] * BROKERS
        members = '[[group]]\nname = "late"\nclient_ids = ["aft*"]\n'
        quotas.write_text(f'{members}[[quota]]\ngroup = "late"\nproducer_byte_rate = 100\n')
        configuration.write_text("throttle_ms_max = 7000\n")
        weir.process.send_signal(signal.SIGHUP)
        missing = {"quotas loaded", "configuration loaded"}
        while missing:
            missing.discard(str(weir.logged("")["event"]))
        for port in ports:
            while (throttle_ms := told(port, "after", 20_000)) == 0:  # the worker has not got them yet
                pass
            assert 6000 < throttle_ms <= 7000
        end = datetime.now(UTC) + timedelta(seconds=1)
        quotas.write_text(f"{quotas.read_text()}until = {end.isoformat()}\n")
        assert weir.logged("quota ended")["entity"] == "group late"
        until(lambda: all(told(port, "after", 20_000) == 0 for port in ports))
        stop(weir)


@pytest.mark.slow
def test_a_new_certificate_is_presented_by_all_workers(tmp_path: Path) -> None:
    path, key = write_pair(tmp_path, HOST)
    with running_workers("2", "--set", f"tls_cert={path},{key}") as (weir, ports):
        weir.logged("listening")
        for _ in range(2):
            certificate = path.read_text("ascii")
            until(lambda: all(certificate.startswith(ssl.get_server_certificate((HOST, p))) for p in ports))  # noqa: B023  # called here
            write_pair(tmp_path, HOST)
        stop(weir)


@pytest.mark.slow
def test_clients_that_name_their_broker_by_sni_reach_that_broker_through_any_worker(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, HOST, "*.kafka.test")
    port, admin = free_range(1), free_range(1)
    with cluster(BROKERS) as (upstream, *_):
        options = ["--upstream", f"{HOST}:{upstream}", "--listen", f"{HOST}:{port}", "--set", "workers=2"]
        options += ["--set", "sni_domain=kafka.test", "--set", f"tls_cert={cert},{key}"]
        with running(*options, "--admin", f"{HOST}:{admin}") as weir:
            weir.logged("admin endpoint listening")
            names = [f"broker-{node}.kafka.test" for node in range(BROKERS)]
            clients = [named_producer(port, name) for name in (*names, "bootstrap.kafka.test")]
            assert [client.produce(500) for client in clients] == [0, 0, 0, 0]
            with urllib.request.urlopen(f"http://{HOST}:{admin}/api/connections", timeout=WAIT_S) as answer:
                listed = {each["client_id"]: each["broker"] for each in json.load(answer)["connections"]}
            assert {name: listed[name] for name in names} == {name: node for node, name in enumerate(names)}
            unknown = named_producer(port, "broker-9.kafka.test")
            with pytest.raises((ConnectionError, EOFError)):
                unknown.produce(500)
            assert weir.logged("connection refused")["reason"] == "server_name_unknown"
            stop(weir)
            for client in (*clients, unknown):
                client.close()


def named_producer(port: int, name: str) -> Producer:
    """A client that asks for this server name, and has it as its client-id."""
    return Producer(port, name, lambda sock: client_context().wrap_socket(sock, server_hostname=name))


def told(port: int, client_id: str, size: int) -> int:
    """The throttle time (ms) that a new connection's produce request of this size is told."""
    client = Producer(port, client_id)
    try:
        return client.produce(size)
    finally:
        client.close()


@pytest.mark.slow
def test_connections_of_all_workers_are_in_one_list_with_numbers_of_their_own() -> None:
    with administered("2") as (weir, ports, api):
        weir.logged("admin endpoint listening")
        clients = [Producer(port, f"app-{port - ports[0]}") for port in ports]
        for client in clients:
            client.produce(500)
        clients[1].produce(500)
        listed = api("/api/connections")
        found = {(each["broker"], each["client_id"], each["listener"]) for each in listed["connections"]}
        assert found == {(node, f"app-{node}", f"broker {node}") for node in range(BROKERS)}
        assert len({each["id"] for each in listed["connections"]}) == BROKERS
        opened_ms = [each["opened_ms"] for each in listed["connections"]]
        assert opened_ms == sorted(opened_ms)
        most = api("/api/connections?sort=in_bytes&limit=1")
        assert ([each["broker"] for each in most["connections"]], most["hidden"]) == ([1], 2)
        (last,) = api("/api/connections?broker=2")["connections"]
        assert (last["broker"], last["state"]) == (2, "OPEN")
        first, second = api("/api/status")["workers"]
        os.kill(first["pid"], signal.SIGSTOP)
        rest = api("/api/connections")
        os.kill(first["pid"], signal.SIGCONT)
        assert len(rest["connections"]) == second["connections"]
        assert rest["hidden"] == first["connections"] == BROKERS - second["connections"]
        stop(weir)
        for client in clients:
            client.close()


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)  # between two looks; nothing is decided by it


@pytest.mark.slow
def test_each_workers_process_has_metrics_of_its_cpu_time_and_memory() -> None:
    with administered("2") as (weir, _ports, api):
        weir.logged("admin endpoint listening")
        pids = [worker["pid"] for worker in api("/api/status")["workers"]]
        lines = api.text("/metrics").splitlines()
        metrics = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
        for number, pid in enumerate(pids):
            pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
            resident = float(metrics[f'weir_worker_resident_bytes{{worker="{number}"}}'])
            assert resident == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.1)
            assert float(metrics[f'weir_worker_cpu_seconds_total{{worker="{number}"}}']) > 0
        stop(weir)


class Api(NamedTuple):
    address: str

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=WAIT_S) as answer:
            found: bytes = answer.read()
            return found.decode()

    def __call__(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(path))
        return found


@contextmanager
def administered(workers: str, *options: str) -> Iterator[tuple[Weir, list[int], Api]]:
    admin = f"{HOST}:{free_range(1)}"
    with running_workers(workers, "--admin", admin, *options) as (weir, ports):
        yield weir, ports, Api(admin)


def summed(records: list[UsageRecord]) -> list[UsageRecord]:
    found: dict[tuple[int, str], UsageRecord] = {}
    for record in records:
        key = record.broker, record.client_id
        before = found.get(key)
        found[key] = (
            record
            if before is None
            else msgspec.structs.replace(
                record, requests=record.requests + before.requests, bytes_in=record.bytes_in + before.bytes_in
            )
        )
    return list(found.values())


@pytest.mark.slow
def test_a_worker_without_free_descriptors_leaves_its_clients_to_the_other_and_says_so() -> None:
    with administered("2") as (weir, ports, api):
        weir.logged("admin endpoint listening")
        first, second = (worker["pid"] for worker in api("/api/status")["workers"])
        _soft, hard = resource.prlimit(first, resource.RLIMIT_NOFILE)
        resource.prlimit(first, resource.RLIMIT_NOFILE, (open_files(first), hard))
        with ExitStack() as clients:
            for number in range(20):
                client = clients.enter_context(closing(Producer(ports[0], f"app-{number}")))
                client.produce(500)
            assert open_files(second) >= open_files(first) + 20
            assert "ulimit" in str(weir.logged("cannot accept connections")["event"])
        stop(weir)


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
