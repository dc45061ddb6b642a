"""The queries of the Grafana dashboard and of the alerts, evaluated on the metrics of a running Weir."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.tour import prometheus

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
SCRAPE_S: Final = 5
UNSAID: Final = frozenset({"instance", "job", "__name__", "le"})
"""Labels that say nothing in the table of the tour."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard with its results."""

    title: str
    series: int
    """Number of series of all queries of the panel."""
    example: str
    """Labels and value of the highest series of the first query with a result; empty without one."""


@dataclass(frozen=True, slots=True)
class Board:
    """The evaluated dashboard."""

    panels: list[Panel]
    alerts: list[str]
    """Names of the alerts whose condition is true."""
    rules: int
    """Number of alerts."""


@contextmanager
def scraping(address: str, folder: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes the admin endpoint at HOST:PORT; yield its own HOST:PORT."""
    jobs = [{"job_name": "weir", "static_configs": [{"targets": [address]}]}]
    config = {"global": {"scrape_interval": f"{SCRAPE_S}s"}, "scrape_configs": jobs}
    with prometheus.serving(folder, yaml.safe_dump(config)) as its:
        yield its


def evaluate(address: str) -> Board:
    """Ask the Prometheus at HOST:PORT for all panels and alerts."""
    panels = json.loads((DEPLOY / "grafana/weir.json").read_text("utf-8"))["panels"]
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    true = [rule["alert"] for rule in rules if prometheus.asked(address, rule["expr"])]
    return Board([_panel(address, panel) for panel in panels], true, len(rules))


def _panel(address: str, panel: dict[str, Any]) -> Panel:
    found = [prometheus.asked(address, target["expr"]) for target in panel["targets"]]
    first: list[prometheus.Series] = next(filter(None, map(_known, found)), [])
    highest = max(first, key=_value, default=None)
    return Panel(panel["title"], sum(map(len, found)), "" if highest is None else _text(highest))


def _known(series: list[prometheus.Series]) -> list[prometheus.Series]:
    return [one for one in series if math.isfinite(_value(one))]


def _value(one: prometheus.Series) -> float:
    return float(one["value"][1])


def _text(one: prometheus.Series) -> str:
    labels = [f"{name}={value}" for name, value in one["metric"].items() if name not in UNSAID and value]
    return f"{', '.join(labels)}: {_number(_value(one))}".removeprefix(": ")


def _number(value: float) -> str:
    """Return a number with three digits, without an exponent unless it is tiny."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
