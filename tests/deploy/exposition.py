"""The metrics that Weir exposes, for tests of files that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def exposed_metrics() -> dict[str, str]:
    """Return the name of every metric, as it is scraped → its type."""
    registry = QuotaRegistry(QuotaTable())
    server = Server(config.load(None, {"upstream": "a:1"}), registry, clock_ms=int)
    state, replication = StoreHealth(lambda: 0.0), ReplicationQuotas()
    sharing = UsageSharing(registry, _no_link, "weir", 1, lambda: 0)
    sources = Sources(server, NoWorkers(), registry, state, lambda: 0, Tally(), replication, Tally(), sharing)
    found = [family for family in families(sources, ready=True) if family is not None]
    return {family.name + SUFFIXES.get(family.type, ""): family.type for family in found}


def _no_link() -> OpenTopic:
    raise StoreError("no topic")
