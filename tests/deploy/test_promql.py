"""The queries of the dashboard and the alert rules, evaluated by Prometheus on scrapes of a server.

The engine is Prometheus itself: the program `prometheus` with `promtool` (Debian's package `prometheus`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.deploy.exposition import ROOT
from tools.tour.prometheus import PROMETHEUS, Series, asked, serving
from weir.proxy.addresses import Address
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.config import config
from weir.proxy.control.events.records import BrokerDown
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.usage.tally import Loss, Tally
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.replication.replication_quotas import ReplicationQuotas

if TYPE_CHECKING:
    from pathlib import Path

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
EMPTY: Final = frozenset(
    {
        "Latency of Weir and brokers",
        "Lag of throttled replicas",
        "Overdrawn mutation quotas",
        "Replicas held back",
        "Replication rate and limit",
        "Request time and limit",
        "Throttle time of shadow quotas",
        "Time without records",
        "Connections closed by reason",
        "Turn times",
    }
)
"""Panels that may be empty: the server has no requests, replicas or shadow quotas."""
Query = Callable[[str], list[Series]]


def scrapes() -> Iterator[tuple[int, list[Metric]]]:
    """Yield Unix times (s) and what a server with a throttled client, a dead broker and lost usage shows."""
    now_us = 0
    reactor = Reactor(lambda: now_us)
    try:
        registry = QuotaRegistry(
            QuotaTable({(Entity(client_id=DEFAULT), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
        )
        server = Server(config.load(None, {"upstream": "a:1"}), reactor, registry)
        server.address_book.learn(1, Address("a", 1))
        server.broker_states.failed(1, "refused")
        tally = Tally()
        sources = Sources(
            server,
            registry,
            StoreHealth(lambda: 0.0),
            lambda: now_us // 1000,
            tally,
            ReplicationQuotas(),
            Tally(),
        )
        for number in range(SCRAPES):
            now_us = number * PERIOD_S * 1_000_000
            produce = registry.of(1).ledger("alice", "etl", now_us // 1000).produce
            assert produce is not None
            produce.charge(30_000, now_us // 1000)
            tally.note_dropped(Loss.QUEUE_FULL, 1)
            server.events.publish(BrokerDown(node_id=1, reason=None))
            yield (
                START_S + number * PERIOD_S,
                [family for family in families(sources, ready=True) if family is not None],
            )
    finally:
        reactor.close()


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


def test_prometheus_evaluates_every_panel_and_those_with_data_show_some(query: Query) -> None:
    results = {panel["title"]: [query(target["expr"]) for target in panel["targets"]] for panel in PANELS}
    empty = {title for title, found in results.items() if not any(found)}
    assert empty - EMPTY == set()


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
    assert true == {"WeirBrokerDown", "WeirEntityThrottled", "WeirUsageLost"}


def test_promtool_accepts_the_alert_rules() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "rules", ROOT / "deploy/alerts.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout + done.stderr
