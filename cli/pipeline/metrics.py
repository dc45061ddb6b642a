"""The option `--metrics-file`: metrics of a job's last run in Prometheus' text format.

The textfile collector of Prometheus' node_exporter reads such files, because a job ends before it could be
scraped. If a run fails, the file keeps the time of the last success and the newest data as they were then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from weir.cli.exits import CommandError
from weir.cli.output_file import write
from weir.proxy.files import read_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.outcome import Outcome

C = TypeVar("C", bound=Callable[..., object])

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size (bytes) of a file with metrics of earlier runs."""
RUN: Final = ("job_name", "lake", "cluster")
"""Labels of runs; `job` would be Prometheus' own. `cluster` is empty for jobs that work on all clusters."""
CLUSTER: Final = ("lake", "cluster")
METRICS: Final = {
    "weir_pipeline_run_timestamp_seconds": ("Time at which the last run ended.", RUN),
    "weir_pipeline_run_successful": ("1 if the last run succeeded, 0 if it failed.", RUN),
    "weir_pipeline_run_duration_seconds": ("Duration of the last run, with Spark's start.", RUN),
    "weir_pipeline_success_timestamp_seconds": ("Time at which the last successful run ended.", RUN),
    "weir_pipeline_read": ("Number of inputs that the last successful run read.", (*RUN, "what")),
    "weir_pipeline_written": ("Number of outputs that the last successful run wrote.", (*RUN, "what")),
    "weir_pipeline_newest_record_timestamp_seconds": (
        "Time of the newest usage record in the lake.",
        CLUSTER,
    ),
    "weir_pipeline_newest_hour_timestamp_seconds": ("Beginning of the newest rolled-up hour.", CLUSTER),
}
"""Help text and labels of each metric. All are gauges."""
OF_RUN: Final = tuple(METRICS)[:3]
"""Names of the metrics that a failed run sets; the others keep their values."""
_OPTION: Final = f"{__name__}.path"


@dataclass(slots=True)
class JobRun:
    """One run of a job, for its metrics."""

    job: str
    lake: str
    cluster: str = ""
    outcome: Outcome | None = None
    """Result of the run; None if it failed."""
    newest: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Unix time (s) of the newest data, by metric and cluster."""


def metrics_option(command: C) -> C:
    """Return the command with the option `--metrics-file`, whose value the command does not get."""
    option = click.option(
        "--metrics-file",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        callback=_keep,
        help="Write metrics of this run when it ends, for node_exporter: FILE.prom, one for each job.",
    )
    return option(command)


def _keep(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Note the path. Raises CommandError if the file could not be written after the run."""
    if path is not None and not path.parent.is_dir():
        raise CommandError(f"--metrics-file {path}: {path.parent} is no directory")
    context.meta[_OPTION] = path


@contextmanager
def measured(job: str, context: click.Context) -> Iterator[JobRun]:
    """Yield a run for the block to complete; after the block, write its metrics if the command has the option
    `--metrics-file`. Raises CommandError if the file cannot be written.
    """
    run, began_s = JobRun(job, context.params["root"], context.params.get("cluster", "")), time.monotonic()
    try:
        yield run
    finally:
        if (path := context.meta.get(_OPTION)) is not None:
            text = exposition(run, time.monotonic() - began_s, time.time(), _before(path))
            write(path, text, force=True)


def newest(job: str, context: click.Context, spark: SparkSession) -> dict[str, dict[str, float]]:
    """Return the newest data that the job has written, by metric and cluster (Unix time, s), if the command
    has the option `--metrics-file`.
    """
    from weir.pipeline import lake as tables_of
    from weir.pipeline.rollup import reading
    from weir.pipeline.tables import USAGE

    lake = tables_of.Lake(context.params["root"])
    if context.meta.get(_OPTION) is None:
        return {}
    if job == "rollup":
        hours = tables_of.newest(reading.rows(spark, lake), "start_ms")
        return {"weir_pipeline_newest_hour_timestamp_seconds": hours}
    if job == "ingest":  # each cluster has an ingest, and a file, of its own
        mine = context.params["cluster"]
        found = tables_of.newest(tables_of.read(spark, lake.usage, USAGE), "time_ms")
        times = {mine: found[mine]} if mine in found else {}
        return {"weir_pipeline_newest_record_timestamp_seconds": times}
    return {}


def exposition(run: JobRun, duration_s: float, now_s: float, before: str) -> str:
    """Return the metrics after a run of `duration_s` (s) that ended at the Unix time `now_s` (s), in
    Prometheus' text format. `before` is the text after the run before it; empty after the first run.
    """
    registry = CollectorRegistry()
    gauges = {name: Gauge(name, text, labels, registry=registry) for name, (text, labels) in METRICS.items()}
    labels = (run.job, run.lake, run.cluster)
    for name, value in zip(OF_RUN, (now_s, run.outcome is not None, duration_s), strict=True):
        gauges[name].labels(*labels).set(value)
    if run.outcome is None:
        _keep_values(gauges, before)
        return generate_latest(registry).decode()
    gauges["weir_pipeline_success_timestamp_seconds"].labels(*labels).set(now_s)
    for name, counts in (("read", run.outcome.read), ("written", run.outcome.wrote)):
        for what, count in counts.items():
            gauges[f"weir_pipeline_{name}"].labels(*labels, what).set(count)
    for name, times in run.newest.items():
        for cluster, time_s in times.items():
            gauges[name].labels(run.lake, cluster).set(time_s)
    return generate_latest(registry).decode()


def _keep_values(gauges: Mapping[str, Gauge], before: str) -> None:
    """Set the gauges that a failed run does not set to their values in the text `before`."""
    for family in text_string_to_metric_families(before):
        if family.name in gauges and family.name not in OF_RUN:
            for sample in family.samples:
                gauges[family.name].labels(**sample.labels).set(sample.value)


def _before(path: Path) -> str:
    """Return the present text of the file; empty if it is missing, unreadable or malformed."""
    try:
        text = read_text(path, FILE_BYTES_MAX)
        for _family in text_string_to_metric_families(text):
            pass
    except (OSError, ValueError):
        return ""
    return text
