"""docs/how-to/operations.md and the alert rules speak of what there is, all of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from weir.proxy.admin.metrics import Sources, families
from weir.proxy.close_reasons import CloseReason
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.control.usage.tally import Tally
from weir.proxy.net.reactor import Reactor
from weir.proxy.server.server import Server
from weir.quotas import QuotaTable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
ALERTS = (ROOT / "deploy" / "alerts.yml").read_text("utf-8")
DEPLOY = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file())
SUFFIXES = {"counter": "_total", "info": "_info"}


@pytest.fixture
def exposed() -> Iterator[dict[str, str]]:
    """Every metric's name, as it is scraped, and its type."""
    reactor = Reactor(lambda: 0)
    registry = QuotaRegistry(QuotaTable())
    server = Server(config.load(None, {"upstream": "a:1"}), reactor, registry)
    sources = Sources(server, registry, StoreHealth(lambda: 0.0), lambda: 0, Tally())
    found = [family for family in families(sources, ready=True) if family is not None]
    yield {family.name + SUFFIXES.get(family.type, ""): family.type for family in found}
    reactor.close()


def rows(column: str) -> dict[str, list[str]]:
    """The rows of the table whose first column is called so, by what is there in backquotes."""
    table = re.search(rf"^\| {column} \|.*\n\|[- |]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table[1].splitlines()
    ]
    return {first.strip("`"): rest for first, *rest in cells}


def test_the_operations_page_lists_every_metric_with_its_type(exposed: dict[str, str]) -> None:
    table = rows("metric")
    del table["process_*"]
    said = {name: rest[0].partition(";")[0] for name, rest in table.items()}
    assert said == {name: "gauge" if kind == "info" else kind for name, kind in exposed.items()}


def test_the_operations_page_lists_every_close_reason() -> None:
    assert set(rows("reason")) == {reason.value for reason in CloseReason}


@pytest.mark.parametrize("text", [PAGE, DEPLOY], ids=["page", "deploy"])
def test_alert_expressions_name_existing_metrics_and_close_reasons(
    exposed: dict[str, str], text: str
) -> None:
    written = set(re.findall(r"\bweir_\w+?(?=[^\w*(]|_\*)", text)) - {"weir_"}
    named = {re.sub(r"_(sum|count|bucket)$", "", name) for name in written}
    assert {name for name in named if not any(known.startswith(name) for known in exposed)} == set()
    reasons = [part for value in re.findall(r'reason=~?"([^"]+)"', text) for part in value.split("|")]
    for reason in reasons:
        assert any(re.fullmatch(reason, known.value) for known in CloseReason), reason


def test_files_of_deploy_that_the_operations_page_names_exist() -> None:
    for path in re.findall(r"`(deploy/[^`]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_every_alert_has_a_runbook_section_that_exists() -> None:
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    alerts, runbooks = re.findall(r"- alert: (\w+)", ALERTS), re.findall(r"runbook_url: (\S+)", ALERTS)
    assert len(alerts) == len(runbooks)
    for runbook in runbooks:
        page, _, anchor = runbook.partition("#")
        assert page.endswith("docs/how-to/operations.md")
        assert anchor in headings


def test_the_table_of_kafkas_names_has_existing_metrics(exposed: dict[str, str]) -> None:
    start = PAGE.index("### Kafka's names")
    named = set(re.findall(r"\bweir_\w+", PAGE[start : PAGE.index("## What to watch", start)]))
    assert len(named) > 10
    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in named} <= set(exposed)
