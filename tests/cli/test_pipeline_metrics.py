"""`weir pipeline … --metrics-file` writes metrics of a run, and keeps the last success after a failed run."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from weir.cli.exits import CommandError
from weir.cli.pipeline.ingest import ingest
from weir.cli.pipeline.metrics import METRICS, JobRun, exposition, measured
from weir.pipeline.outcome import Outcome, PipelineError

NEWEST = "weir_pipeline_newest_record_timestamp_seconds"


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the values by the name of the metric and its labels' values."""
    return {
        (sample.name, *(sample.labels[label] for label in METRICS[sample.name][1])): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def succeeded() -> JobRun:
    outcome = Outcome("ingest", read={"usage lines": 5}, wrote={"usage records": 3, "rejected usage": 2})
    return JobRun("ingest", "/srv/lake", "east", outcome, {NEWEST: {"east": 900.5}})


def context(tmp_path: Path, *options: str) -> click.Context:
    needed = ["--lake", "/srv/lake", "--files", "/records", "--cluster", "east"]
    return ingest.make_context("ingest", [*needed, "--metrics-file", str(tmp_path / "ingest.prom"), *options])


def test_metrics_of_a_successful_run_have_its_counts_and_the_newest_record() -> None:
    of_run = ("ingest", "/srv/lake", "east")
    assert samples(exposition(succeeded(), 12.5, 1000, "")) == {
        ("weir_pipeline_run_timestamp_seconds", *of_run): 1000,
        ("weir_pipeline_run_successful", *of_run): 1,
        ("weir_pipeline_run_duration_seconds", *of_run): 12.5,
        ("weir_pipeline_success_timestamp_seconds", *of_run): 1000,
        ("weir_pipeline_read", *of_run, "usage lines"): 5,
        ("weir_pipeline_written", *of_run, "usage records"): 3,
        ("weir_pipeline_written", *of_run, "rejected usage"): 2,
        (NEWEST, "/srv/lake", "east"): 900.5,
    }


def test_metrics_of_a_failed_run_keep_the_last_success_and_the_newest_record() -> None:
    before = exposition(succeeded(), 12.5, 1000, "")
    after = exposition(JobRun("ingest", "/srv/lake", "east"), 3, 2000, before)
    changed = {name: value for name, value in samples(after).items() if value != samples(before)[name]}
    of_run = ("ingest", "/srv/lake", "east")
    assert changed == {
        ("weir_pipeline_run_timestamp_seconds", *of_run): 2000,
        ("weir_pipeline_run_successful", *of_run): 0,
        ("weir_pipeline_run_duration_seconds", *of_run): 3,
    }
    assert samples(before).keys() == samples(after).keys()


def test_a_run_that_fails_writes_the_metrics_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError), measured("ingest", context(tmp_path)):
        raise PipelineError("no broker answers")
    found = samples((tmp_path / "ingest.prom").read_text("utf-8"))
    assert found["weir_pipeline_run_successful", "ingest", "/srv/lake", "east"] == 0
    assert not any(name == "weir_pipeline_success_timestamp_seconds" for name, *_ in found)
    assert [path.name for path in tmp_path.iterdir()] == ["ingest.prom"]


def test_a_metrics_file_in_a_missing_directory_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is no directory"):
        context(tmp_path / "missing")
