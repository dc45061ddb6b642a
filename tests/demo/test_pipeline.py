"""The pipeline demonstration without Spark: its verdict, its directory, and its error messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from weir.cli.main import weir
from weir.cli.pipeline import demo as cli_pipeline_demo
from weir.demo.client_specs import CLIENTS, quota_table
from weir.demo.pipeline_verdict import ReplayVerdict
from weir.pipeline.replay.summary import Range


@pytest.mark.parametrize(
    ("recorded_s", "in_force_s", "passed", "words"),
    [
        (100.0, 101.9, True, "Passed: clients were told to wait 100.0 s in all. "),
        (100.0, 98.1, True, "it is 98.1 s (-1.90 %)."),
        (100.0, 102.1, False, "Failed: clients were told to wait 100.0 s in all. "),
        (100.0, 97.9, False, "it is 97.9 s (-2.10 %)."),
        (0.0, 0.0, False, "(no client was throttled)"),
    ],
)
def test_pipeline_demo_passes_or_fails_by_replayed_throttle_time(
    recorded_s: float, in_force_s: float, passed: bool, words: str
) -> None:
    verdict = ReplayVerdict(recorded_s, in_force_s, Range(12.34, 12.34))
    assert verdict.passed is passed
    assert words in verdict.lines()[0]
    assert verdict.lines()[1] == "Under the recommended quotas it would have been 12.3 s."


def test_pipeline_demo_tells_a_range_for_clients_that_were_held_back() -> None:
    """The same clients under the recommended quotas were told to wait for 161.4 s."""
    _accuracy, told = ReplayVerdict(160.2, 160.2, Range(0.0, 181.0)).lines()
    assert told == (
        "Under the recommended quotas it may be anything from 0.0 to 181.0 s: "
        "the quotas held clients back, so nobody knows how much more they would have sent."
    )
    _accuracy, told = ReplayVerdict(160.2, 160.2, Range(0.0, None)).lines()
    assert told.startswith("Under the recommended quotas it may be 0.0 s or any longer time: ")


def test_pipeline_demo_gives_some_clients_a_quota() -> None:
    """Without quotas there would be no throttle times to compare."""
    assert quota_table(CLIENTS).values


def test_pipeline_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    outcome = CliRunner().invoke(weir, ["demo", "--pipeline", "--directory", str(tmp_path)])
    assert outcome.exit_code == 2
    assert outcome.output == f"weir: {tmp_path} is not empty: name another --directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_pipeline_demo_reports_a_missing_package_with_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_pipeline_demo, "find_spec", lambda name: None if name == "jinja2" else name)
    outcome = CliRunner().invoke(weir, ["demo", "--pipeline"])
    assert outcome.exit_code == 2
    assert outcome.output == (
        "weir: the demonstration needs jinja2: pip install '.[demo,pipeline]' in a checkout, or use "
        "`make pipeline-demo`\n"
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_pipeline_demo_without_its_upstream_leaves_no_directory(is_there: bool, tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    if is_there:
        directory.mkdir()
    command = ["demo", "--pipeline", "--upstream", "127.0.0.1:1", "--directory", str(directory)]
    outcome = CliRunner().invoke(weir, command)
    assert outcome.exit_code == 2
    assert outcome.stderr == (
        "weir: no upstream broker can be reached: 127.0.0.1:1: connection refused: check --upstream\n"
    )
    assert directory.exists() is is_there
