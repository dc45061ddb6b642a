"""deploy/grafana/weir.json: its queries name existing metrics and labels, and its panels do not overlap."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.deploy.exposition import ROOT, exposed_metrics

DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "deploy/grafana/weir.json").read_text("utf-8"))
PANELS: Final[list[dict[str, Any]]] = DASHBOARD["panels"]
PAGE: Final = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
SUBJECTS: Final = (
    "weir_entity_throttle_seconds_total",
    "weir_entity_rate_bytes_per_second",
    "weir_entity_limit_bytes_per_second",
    "weir_entity_utilization",
    "weir_broker_up",
    "weir_sessions_closed_total",
    "weir_turn_seconds_bucket",
    "weir_worker_restarts_total",
    "weir_worker_cpu_seconds_total",
    "weir_leader_replication_throttled_rate",
    "weir_follower_replication_throttled_rate",
    "weir_replication_lag",
)
"""Metrics that the dashboard has to show."""


def queries() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def exposed() -> Mapping[str, str]:
    return exposed_metrics()


def test_every_rate_and_quantile_of_the_dashboard_is_of_the_right_type(exposed: Mapping[str, str]) -> None:
    for query in queries():
        for name in re.findall(r"rate\((weir_\w+)", query):
            kind = exposed[re.sub(r"_bucket$", "", name)]
            assert kind == ("histogram" if name.endswith("_bucket") else "counter"), query


def test_the_dashboard_shows_throttles_limits_brokers_connections_turns_and_replication() -> None:
    together = " ".join(queries())
    assert [name for name in SUBJECTS if name not in together] == []


def test_labels_that_the_dashboard_groups_by_are_in_the_table_of_metrics() -> None:
    grouped = {
        name
        for query in queries()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for name in group.split(", ")
    }
    beyond = {name for name in grouped if not re.search(rf"^\| `weir_.*\b{name}\b", PAGE, re.MULTILINE)}
    assert beyond == {"instance", "le"}, "labels that Prometheus adds"


def test_variables_of_the_dashboard_are_defined() -> None:
    text = json.dumps(PANELS)
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == names
