"""What all jobs of `weir pipeline` share. No Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError

from tests.matrix import first_core
from weir.cli.main import weir
from weir.cli.pipeline import replay as replay_command
from weir.cli.pipeline.days import Days
from weir.cli.pipeline.rollup import rollup
from weir.cli.pipeline.run import NEEDED, _first_line
from weir.pipeline.replay import job as replay_job
from weir.pipeline.replay.job import ReplayOptions
from weir.quotas.table.options import Pacing

JOBS = (
    ("ingest", "--files", "d"),
    ("rollup",),
    ("recommend", "--output", "q.toml"),
    ("replay", "q.toml"),
    ("report", "--output", "r.html"),
)


@pytest.mark.parametrize("arguments", JOBS, ids=lambda arguments: arguments[0])
@pytest.mark.parametrize("root", ["/l[a]ke", "/la?e", "/*", "/{a,b}", "a\\ke"])
def test_a_lake_path_that_spark_takes_for_a_pattern_is_refused(arguments: tuple[str, ...], root: str) -> None:
    """Ingest writes to the directory of that name; Spark reads the directories that match it."""
    done = CliRunner().invoke(weir, ["pipeline", *arguments, "--lake", root])
    assert done.exit_code == 2
    assert f"{root}: Spark takes such a name for a pattern" in done.stderr


def test_replay_takes_windows_and_pacing_from_weirs_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lake, given = tmp_path / "weir.toml", ["--lake", str(tmp_path)], list[ReplayOptions]()
    arguments = ["pipeline", "replay", "q.toml", *lake, "--config", str(file)]
    monkeypatch.setattr(replay_command, "run_job", lambda _name, job, **_options: job(None))
    monkeypatch.setattr(replay_job, "replay", lambda _spark, _lake, _files, options: given.append(options))
    file.write_text('quota_window_num = 5\nthrottle_ms_max = "3s"\nquota_pacing = "smooth"\n')
    done = CliRunner().invoke(weir, arguments)
    assert done.exit_code == 0, done.output
    ((settings, pacing),) = [(options.settings, options.pacing) for options in given]
    assert (settings.num_samples, settings.throttle_ms_max, pacing) == (5, 3000, Pacing.SMOOTH)
    file.write_text("quota_window_num = 1")
    assert "quota_window_num is 1, must be" in CliRunner().invoke(weir, arguments).stderr


def test_a_lake_without_a_name_is_not_the_root_of_the_file_system() -> None:
    done = CliRunner().invoke(weir, ["pipeline", "rollup", "--lake", ""])
    assert done.exit_code == 2
    assert done.stderr == "weir: --lake is empty: name a directory\n"


@pytest.mark.parametrize(
    ("given", "root"),
    [("lake", "{here}/lake"), ("../lake", "{here}/../lake"), ("s3a://b/lake", "s3a://b/lake")],
)
def test_a_relative_lake_is_below_the_current_directory(
    given: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta finds no table by a relative path."""
    monkeypatch.chdir(tmp_path)
    context = rollup.make_context("rollup", ["--lake", given])
    assert context.params["root"] == root.format(here=tmp_path)


@pytest.mark.parametrize("job", first_core([arguments[0] for arguments in JOBS]))
def test_a_job_without_the_pipelines_packages_names_them(job: str) -> None:
    (arguments,) = (each for each in JOBS if each[0] == job)
    script = f"""
import sys
sys.modules.update(dict.fromkeys({(*NEEDED, "py4j")}))
from weir.cli.exits import run_command
from weir.cli.main import weir
sys.argv[1:] = {["pipeline", *arguments, "--lake", "lake"]}
run_command(weir, "weir")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == (
        f"weir: the pipeline needs {', '.join(NEEDED)}: pip install '.[pipeline]' in a checkout\n"
    )


@pytest.mark.parametrize("arguments", JOBS[1:], ids=lambda arguments: arguments[0])
def test_a_missing_lake_is_refused_before_spark_starts(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("weir.pipeline.spark.session", start)
    (tmp_path / "q.toml").touch()
    options = ["--force"] if arguments[0] == "recommend" else []
    done = CliRunner().invoke(weir, ["pipeline", *arguments, *options, "--lake", "typo"])
    assert done.exit_code == 2
    expected = f"weir: --lake {tmp_path}/typo: no such directory; weir pipeline ingest creates a lake\n"
    assert done.stderr.endswith(expected)


def test_a_java_error_is_reported_by_its_cause_without_the_python_call() -> None:
    error = Py4JError(
        "An error occurred while calling o5.parquet.\n: org.apache.spark.SparkException: Job aborted.\n"
        "\tat some.where(Some.scala:1)\nCaused by: java.io.IOException: No space left on device\n"
        "\t... 5 more\n"
    )
    assert _first_line(error) == "java.io.IOException: No space left on device"
    assert _first_line(Py4JError("\n An answer\nand more")) == "An answer"
    assert _first_line(Py4JError("")) == "Py4JError"


def test_report_does_not_replace_an_existing_file_without_force(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("mine")
    done = CliRunner().invoke(weir, ["pipeline", "report", "--lake", "nowhere", "--output", str(page)])
    said = f"weir: {page} exists already: choose another, or --force to replace it\n"
    assert (done.exit_code, done.stderr, page.read_text()) == (2, said, "mine")


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11-01..2026-11-07", date(2026, 11, 1), date(2026, 11, 7)),
        ("2026-11-01..2026-11-01", date(2026, 11, 1), date(2026, 11, 1)),
        ("2026-11-01", date(2026, 11, 1), date(2026, 11, 1)),
    ],
)
def test_days_option_parses_a_day_and_a_range(text: str, first: date, last: date) -> None:
    assert Days()(text) == (first, last)


BACKWARDS = "2026-11-02..2026-11-01"


@pytest.mark.parametrize(
    "text",
    ["", "..", "2026-11-01..", "..2026-11-01", "2026-11-31", "2026-11-01..2026-13-01", "today", BACKWARDS],
)
def test_days_option_refuses_a_range_without_both_ends(text: str) -> None:
    """Above all a range without an end, which would else be its first day alone."""
    why = (
        "ends before it begins: exchange the two"
        if text == BACKWARDS
        else "is not FROM..TO, such as 2026-11-01..2026-11-07"
    )
    with pytest.raises(click.BadParameter) as refused:
        Days()(text)
    assert refused.value.message == f"{text!r} {why}"
