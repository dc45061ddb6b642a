"""The metrics that Weir exposes, for tests of files that name them.

`python -m tests.deploy.exposition` writes the table in docs/reference/metrics.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client.core import Metric

from tests.proxy.supervised import NoWorkers
from weir.proxy.admin.metrics import Sources, families
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.reader import OpenTopic
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.stores.store import StoreError, StoreHealth
from weir.proxy.control.usage.tally import Tally
from weir.proxy.server.server import Server
from weir.quotas import QuotaTable
from weir.quotas.replication.replication_quotas import ReplicationQuotas

ROOT: Final = Path(__file__).parents[2]
METRICS_PAGE: Final = ROOT / "docs" / "reference" / "metrics.md"
BEGIN, END = "<!-- metrics -->", "<!-- end of metrics -->"
SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def exposed_metrics() -> dict[str, str]:
    """Return the name of every metric, as it is scraped → its type."""
    return {_name(family): family.type for family in _families()}


def with_table(page: str) -> str:
    """Return the page with the table of metrics that the product declares; shadow quotas have the same."""
    rows, before = ["| metric | type; labels | meaning |", "| --- | --- | --- |"], ""
    for family in _families():
        if family.name.startswith("weir_shadow_"):
            continue
        labels = ", ".join(getattr(family, "_labelnames", ()))
        shown = "same" if labels == before and len(labels) > len("broker, quota") else labels
        kind = f"{family.type}; {shown}" if shown else family.type
        rows.append(f"| `{_name(family)}` | {kind} | {family.documentation} |")
        before = labels
    start, _, rest = page.partition(BEGIN)
    return "\n".join([start + BEGIN, *rows, END + rest.partition(END)[2]])


def _name(family: Metric) -> str:
    return family.name + SUFFIXES.get(family.type, "")


def _families() -> list[Metric]:
    registry = QuotaRegistry(QuotaTable())
    server = Server(config.load(None, {"upstream": "a:1"}), registry, clock_ms=int)
    state, replication = StoreHealth(lambda: 0.0), ReplicationQuotas()
    sharing = UsageSharing(registry, _no_link, "weir", 1, lambda: 0)
    sources = Sources(server, NoWorkers(), registry, state, lambda: 0, Tally(), replication, Tally(), sharing)
    return [family for family in families(sources, ready=True) if family is not None]


def _no_link() -> OpenTopic:
    raise StoreError("no topic")


if __name__ == "__main__":
    METRICS_PAGE.write_text(with_table(METRICS_PAGE.read_text("utf-8")), "utf-8")
