"""The queries of the dashboard and the alert rules, evaluated by Prometheus on scrapes of a server.

The engine is Prometheus itself: the program `prometheus` with `promtool` (Debian's package `prometheus`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from prometheus_client import ProcessCollector

from tests.deploy.exposition import ROOT
from tests.deploy.prometheus import PROMETHEUS, Series, asked, serving
from tests.proxy.supervised import NoWorkers
from tests.proxy.throttled_replicas import NOW_MS, quotas
from weir.protocol.api import ApiKey
from weir.proxy.addresses import Address
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.configured import quota_registry
from weir.proxy.control.events.records import BrokerDown
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.records import WorkerRecord
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.usage.tally import Loss, Tally
from weir.proxy.server.server import Server
from weir.quotas import parse
from weir.quotas.replication.replication_quotas import ReplicationQuotas
from weir.quotas.replication.throttles import Role

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="needs prometheus and promtool (Debian: prometheus)"
)

START_S: Final = 1_763_775_600
PERIOD_S: Final = 15
SCRAPES: Final = 160
"""Number of scrapes: 40 minutes, so that alerts of half an hour can fire."""
END_S: Final = START_S + (SCRAPES - 1) * PERIOD_S
PANELS: Final[list[dict[str, Any]]] = json.loads((ROOT / "deploy/grafana/weir.json").read_text("utf-8"))[
    "panels"
]
RULES: Final[list[dict[str, Any]]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
EMPTY: Final = {"Weir's health": ("weir_task_failures_total",)}
"""Panel → metrics of those queries that return no series on these scrapes. Only a bug makes one of Weir's own
tasks fail, and the server of these tests has none.
"""
QUOTAS: Final = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000
request_percentage = 10
controller_mutation_rate = 1

[[quota]]
user = "bob"
consumer_byte_rate = 1000
mode = "shadow"
"""
PEOPLE: Final = (("alice", "etl"), ("bob", "report"))
"""User and client-id of each client."""
Query = Callable[[str], list[Series]]


def scrapes() -> Iterator[tuple[int, list[Metric]]]:
    """Yield Unix times (s) and the metrics of a server, with those of the process. The server has a throttled
    client, a dead broker, lost usage, lost workers, and a throttled replica.
    """
    now_ms = NOW_MS
    replication, tally = quotas(), Tally()
    loaded = config.load(None, {"upstream": "a:1", "max_connection_creation_rate": 100})
    registry = quota_registry(loaded, parse(QUOTAS))
    server = Server(loaded, registry, clock_ms=lambda: now_ms)
    server.address_book.learn(1, Address("a", 1))
    server.broker_states.failed(1, "refused")
    workers = NoWorkers(WorkerRecord(id=0, pid=os.getpid(), connections=0, beat_ms=now_ms))
    store = StoreHealth(lambda: 0.0)
    sources = Sources(server, workers, registry, store, lambda: now_ms, tally, replication, events=Tally())
    for number in range(SCRAPES):
        now_ms = NOW_MS + number * PERIOD_S * 1000
        _charge(registry, now_ms)
        _replicate(replication, now_ms)
        _serve(server)
        tally.note_dropped(Loss.QUEUE_FULL, 1)
        found = [*families(sources, ready=True), *ProcessCollector(registry=None).collect()]
        yield START_S + number * PERIOD_S, [family for family in found if family is not None]


def _charge(registry: QuotaRegistry, now_ms: int) -> None:
    """Charge alice above her byte rate and her mutation rate, and below her request time. Charge bob above
    the shadow quota.
    """
    registry.connections.arrive(1, now_ms)
    alice, bob = (registry.of(1).ledger(user, client_id, now_ms) for user, client_id in PEOPLE)
    alice.charge_produce(30_000, now_ms)
    alice.charge_request(ApiKey.PRODUCE, 5000.0, now_ms)
    bob.charge_fetch(30_000, now_ms)
    mutations = registry.mutations.budget("alice", "etl", now_ms)
    assert mutations is not None
    mutations.charge(20, now_ms)


def _replicate(replication: ReplicationQuotas, now_ms: int) -> None:
    """Have all followers fetch from broker 1, and lag behind as before."""
    for progress in replication.progress.values():
        progress.sent_bytes += 400_000
        progress.high_watermark += 1000
        progress.next_offset += 1000
        progress.seen_ms = now_ms
    replication.budget(Role.LEADER, 1).charge(400_000, now_ms)
    replication.budget(Role.FOLLOWER, 2).charge(400_000, now_ms)


def _serve(server: Server) -> None:
    """Count a short connection with one request, a lost worker, a turn of the reactor, and an event."""
    counters, latencies = server.counters, server.latencies
    counters.sessions_opened += 1
    counters.closed_at[CloseReason.CLIENT_CLOSED, 1] += 1
    server.worker_restarts["died"] += 1
    latencies.forward.note(60)
    latencies.note_answer(ApiKey.PRODUCE, 900)
    server.turns.note_slow(1500)
    server.events.publish(BrokerDown(node_id=1, reason=None))


def open_metrics() -> str:
    """Return all scrapes as one file, as Prometheus would have stored them: with job and instance."""
    kinds: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for at_s, found in scrapes():
        for family in found:
            kinds[family.name] = family.type
            for sample in family.samples:
                labels = {**sample.labels, "job": "weir", "instance": "weir:9644"}
                text = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
                lines.setdefault(family.name, []).append(
                    f"{sample.name}{{{text}}} {float(sample.value)} {at_s}"
                )
    up = [f'up{{job="weir",instance="weir:9644"}} 1 {START_S + n * PERIOD_S}' for n in range(SCRAPES)]
    parts = [f"# TYPE {name} {kinds[name]}\n" + "\n".join(sorted(lines[name], key=_series)) for name in lines]
    return "\n".join([*parts, "# TYPE up gauge", *up, "# EOF", ""])


def _series(line: str) -> str:
    """Return the name and labels of a sample. Samples of one series must be in the order of time."""
    return line.rsplit(" ", 2)[0]


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """A Prometheus that has stored the scrapes; called with an expression, it returns the result."""
    assert PROMTOOL is not None
    folder: Path = tmp_path_factory.mktemp("prometheus")
    (folder / "scrapes").write_text(open_metrics(), "utf-8")
    made = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics"]
    made += [str(folder / "scrapes"), str(folder / "data")]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with serving(folder, "{}", "--storage.tsdb.retention.time=100y") as address:
        yield lambda expression: asked(address, expression, END_S)


def of_panel(title: str) -> list[str]:
    (panel,) = [panel for panel in PANELS if panel["title"] == title]
    return [target["expr"] for target in panel["targets"]]


def test_prometheus_finds_series_for_every_query_of_every_panel(query: Query) -> None:
    found = {
        (panel["title"], target["expr"]): query(target["expr"])
        for panel in PANELS
        for target in panel["targets"]
    }
    assert len(found) > 40
    empty = {place for place, series in found.items() if not series}
    expected = {
        (title, expression)
        for title, expression in found
        if any(metric in expression for metric in EMPTY.get(title, ()))
    }
    assert empty == expected


def test_the_dashboard_shows_the_throttled_entity_its_quota_and_since_when(query: Query) -> None:
    (count,) = query(of_panel("Throttled entities")[0])
    assert count["value"][1] == "1"
    (by_quota,) = query(of_panel("Throttled entities by quota")[0])
    assert (by_quota["metric"], by_quota["value"][1]) == ({"quota": "producer_byte_rate"}, "1")
    (since,) = query(of_panel("Minutes throttled in the last hour")[0])
    assert since["metric"]["client_id"] == "etl"
    assert 37 <= int(since["value"][1]) <= 40  # the scrapes cover 40 minutes, the first has no rate
    (down,) = query(of_panel("Brokers down")[0])
    assert down["value"][1] == "1"


def test_prometheus_evaluates_every_alert_and_those_of_present_faults_are_true(query: Query) -> None:
    true = {rule["alert"] for rule in RULES if query(rule["expr"])}
    assert true == {"WeirBrokerDown", "WeirEntityThrottled", "WeirUsageLost", "WeirWorkerLost"}


def test_promtool_accepts_the_alert_rules() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", ROOT / "deploy/alerts.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout + done.stderr
