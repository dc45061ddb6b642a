"""Pages for operators, metrics, close reasons and alert rules speak of what there is, all of it."""

from __future__ import annotations

import re

import pytest

from tests.deploy.exposition import METRICS_PAGE, ROOT, exposed_metrics, with_table
from weir.cli.pipeline.metrics import METRICS as PIPELINE_METRICS
from weir.proxy.close_reasons import CloseReason

PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
METRICS = METRICS_PAGE.read_text("utf-8")
ALERTS = (ROOT / "deploy" / "alerts.yml").read_text("utf-8")
DEPLOY = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "deploy").rglob("*")) if path.is_file())


@pytest.fixture(scope="module")
def exposed() -> dict[str, str]:
    return exposed_metrics()


def test_the_page_of_metrics_has_the_table_that_the_product_declares() -> None:
    """`python -m tests.deploy.exposition` writes it."""
    assert with_table(METRICS) == METRICS


def test_the_page_of_close_reasons_lists_every_one() -> None:
    page = (ROOT / "docs" / "reference" / "close-reasons.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(CloseReason)


@pytest.mark.parametrize("text", [PAGE, METRICS, DEPLOY], ids=["operations", "metrics", "deploy"])
def test_alert_expressions_name_existing_metrics_and_close_reasons(
    exposed: dict[str, str], text: str
) -> None:
    written = set(re.findall(r"\bweir_\w+?(?=[^\w*(]|_\*)", text)) - {"weir_"}
    named = {re.sub(r"_(sum|count|bucket)$", "", name) for name in written}
    assert {
        name for name in named if not any(known.startswith(name) for known in (*exposed, *PIPELINE_METRICS))
    } == set()
    reasons = [part for value in re.findall(r'reason=~?"([^"]+)"', text) for part in value.split("|")]
    for reason in reasons:
        assert any(re.fullmatch(reason, known.value) for known in CloseReason), reason


def test_every_alert_has_a_runbook_section_that_exists() -> None:
    alerts, runbooks = (
        re.findall(r"- alert: (\w+)", ALERTS),
        re.findall(r'runbook_url: "\{\{ \$externalLabels.docs_of_weir \}\}/(.+)"', ALERTS),
    )
    assert len(alerts) == len(runbooks)
    for runbook in runbooks:
        page, _, anchor = runbook.partition("#")
        text = (ROOT / "docs" / page).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_table_of_kafkas_names_has_existing_metrics(exposed: dict[str, str]) -> None:
    named = set(re.findall(r"\bweir_\w+", METRICS[METRICS.index("## Kafka's names") :]))
    assert len(named) > 10
    assert {re.sub(r"_(sum|count|bucket)$", "", name) for name in named} <= set(exposed)
