"""Scrape the metrics of a server that was never started, and parse the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import trio
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.proxy.supervised import NoWorkers
from weir.proxy.admin.exposition import render
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.server.server import Server
from weir.quotas import parse

PLAIN = "text/plain"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PARSERS: dict[str, Callable[[str], Iterable[Metric]]] = {PLAIN: parse_text, OPENMETRICS: parse_openmetrics}
EVERYBODY = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000000
consumer_byte_rate = 2000000
"""


def registry_of(quotas: str = EVERYBODY) -> QuotaRegistry:
    return QuotaRegistry(parse(quotas))


class Page:
    def __init__(self, text: bytes, accept: str = PLAIN) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in PARSERS[accept](text.decode("utf-8")):
            for sample in family.samples:
                key = (sample.name, said(sample.labels))
                assert key not in self.samples, f"twice: {key}"
                self.samples[key] = sample.value

    def __getitem__(self, name: str) -> float:
        (value,) = self.rows(name).values()
        return value

    def rows(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (its_name, labels), value in self.samples.items() if its_name == name}

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, said(labels)]


def said(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    """To Prometheus an empty label is none."""
    return frozenset((name, value) for name, value in labels.items() if value)


@pytest.fixture
def server() -> Server:
    return Server(config.load(None, {"upstream": "kafka:9092"}), registry_of(), clock_ms=int)


def scraped(
    server: Server,
    registry: QuotaRegistry | None = None,
    *,
    now_ms: int = 0,
    accept: str = PLAIN,
    ready: bool = True,
) -> Page:
    sources = Sources(
        server, NoWorkers(), registry or registry_of(), StoreHealth(lambda: 1e9), lambda: now_ms
    )
    text, content_type = trio.run(render, families(sources, ready=ready), accept)
    assert content_type.startswith(accept.partition(";")[0])
    return Page(text, accept)
