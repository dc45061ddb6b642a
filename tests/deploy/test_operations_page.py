"""docs/how-to/operations.md and the alert rules speak of what there is, all of it."""

from __future__ import annotations

import re

import pytest

from tests.deploy.exposition import ROOT, exposed_metrics
from weir.cli.pipeline.metrics import METRICS
from weir.proxy.close_reasons import CloseReason

PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
ALERTS = (ROOT / "deploy" / "alerts.yml").read_text("utf-8")
DEPLOY = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file())


@pytest.fixture(scope="module")
def exposed() -> dict[str, str]:
    return exposed_metrics()


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
    assert {
        name for name in named if not any(known.startswith(name) for known in (*exposed, *METRICS))
    } == set()
    reasons = [part for value in re.findall(r'reason=~?"([^"]+)"', text) for part in value.split("|")]
    for reason in reasons:
        assert any(re.fullmatch(reason, known.value) for known in CloseReason), reason


def test_every_alert_has_a_runbook_section_that_exists() -> None:
    alerts, runbooks = re.findall(r"- alert: (\w+)", ALERTS), re.findall(r"runbook_url: (\S+)", ALERTS)
    assert len(alerts) == len(runbooks)
    for runbook in runbooks:
        page, _, anchor = runbook.partition("#")
        text = (ROOT / page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_table_of_kafkas_names_has_existing_metrics(exposed: dict[str, str]) -> None:
    start = PAGE.index("### Kafka's names")
    named = set(re.findall(r"\bweir_\w+", PAGE[start : PAGE.index("## What to watch", start)]))
    assert len(named) > 10
    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in named} <= set(exposed)
