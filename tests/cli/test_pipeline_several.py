"""`weir pipeline JOB then JOB`, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from weir.cli.main import weir
from weir.pipeline.outcome import Outcome, PipelineError


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace Spark, and return the names of the sessions that begin."""
    begun = list[str]()

    @contextmanager
    def session(name: str, **_others: object) -> Iterator[object]:
        begun.append(name)
        yield object()

    monkeypatch.setattr("weir.pipeline.spark.session", session)
    monkeypatch.setattr("weir.cli.pipeline.run._watch", lambda *_: None)
    monkeypatch.setattr("weir.cli.pipeline.run.newest", lambda *_: {})
    return begun


def test_jobs_run_in_order_in_one_session(
    sessions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes = list[tuple[str, str, object]]()

    def rolled(spark: object, lake: object, **_others: object) -> Outcome:
        lakes.append(("rollup", lake.root, spark))  # type: ignore[attr-defined]  # a Lake
        return Outcome("rollup")

    def cleaned(spark: object, lake: object, *_arguments: object, **options: object) -> Outcome:
        lakes.append((f"maintain {options['keep_days']}", lake.root, spark))  # type: ignore[attr-defined]
        return Outcome("maintain")

    monkeypatch.setattr("weir.pipeline.rollup.job.rollup", rolled)
    monkeypatch.setattr("weir.pipeline.maintain.maintain", cleaned)
    metrics = tmp_path / "rollup.prom"
    command = ["pipeline", "rollup", "--json", "--lake", str(tmp_path), "--metrics-file", str(metrics)]
    done = CliRunner(env={"WEIR_LAKE": "/elsewhere"}).invoke(
        weir, [*command, "then", "maintain", "--retention-days", "9"]
    )
    assert done.exit_code == 0, done.output
    outcomes = [msgspec.json.decode(line) for line in done.output.splitlines()]
    assert [outcome["job"] for outcome in outcomes] == ["rollup", "maintain"]
    assert [(name, root) for name, root, _spark in lakes] == [
        ("rollup", str(tmp_path)),
        ("maintain 9", str(tmp_path)),
    ]
    assert len({spark for _name, _root, spark in lakes}) == 1
    assert sessions == ["pipeline"]
    assert 'weir_pipeline_run_successful{cluster="",job_name="rollup"' in metrics.read_text()


def test_the_first_job_that_fails_is_the_last_one(
    sessions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> Outcome:
        raise PipelineError("nothing works")

    monkeypatch.setattr("weir.pipeline.rollup.job.rollup", fail)
    done = CliRunner().invoke(weir, ["pipeline", "rollup", "--lake", str(tmp_path), "then", "maintain"])
    assert (done.exit_code, done.stderr) == (2, "weir: nothing works\n")
    assert sessions == ["pipeline"]


@pytest.mark.parametrize(
    ("typed", "found"), [("then ma", "maintain"), ("then maintain --his", "--history-days")]
)
def test_a_shell_completes_a_job_behind_then(typed: str, found: str) -> None:
    words = ["weir", "pipeline", "rollup", *typed.split()]
    variables = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner(env={"_WEIR_COMPLETE": "bash_complete", **variables}).invoke(weir, prog_name="weir")
    assert done.stdout == f"plain,{found}\n"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("then rollup --window-second 5", "No such option '--window-second'"),
        ("then maintain", "'x' is not a valid integer"),
        ("then rollup --driver-memory 1GiB", "give --driver-memory to the first one"),
        ("then demo", "No such command 'demo'"),
        ("then", "then must stand between two jobs"),
        ("then then rollup", "then must stand between two jobs"),
    ],
)
def test_wrong_jobs_are_refused_before_spark_starts(sessions: list[str], job: str, message: str) -> None:
    environment = {"WEIR_PIPELINE_MAINTAIN_HISTORY_DAYS": "x"}
    done = CliRunner(env=environment).invoke(weir, ["pipeline", "rollup", "--lake", "/", *job.split()])
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert sessions == []
