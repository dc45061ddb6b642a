"""`weir demo`: real producers and consumers, without quotas and with them, in forty seconds."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final

import click

from weir.cli.exits import DONE, FAILED, USAGE
from weir.cli.quantity import Quantity
from weir.cli.settings.options import UPSTREAM_VARIABLE
from weir.demo.errors import DemoError
from weir.pipeline.outcome import PipelineError

EXAMPLES = """\b
Examples:
  weir demo
  weir demo --upstream kafka-1:9092 --for 60
  weir demo --json | jq .passed
  weir demo --pipeline --directory demo
"""


PIPELINE_S_MIN: Final = 15
"""Minimum duration (s) of the load for --pipeline: ten seconds at exactly the quotas, then more."""


@click.command(epilog=EXAMPLES)
@click.option(
    "--upstream",
    metavar="HOST:PORT",
    envvar=UPSTREAM_VARIABLE,
    show_envvar=True,
    help="Use this cluster, with new topics that are deleted at the end. [default: a mock cluster]",
)
@click.option(
    "--for",
    "seconds",
    metavar="DURATION",
    type=Quantity("s", 5, 3600),
    help="Duration of the measurement, or of the recorded load. [default: 15, with --pipeline 30]",
)
@click.option(
    "--pipeline",
    "of_pipeline",
    is_flag=True,
    help="Record the clients' usage instead, and run all jobs of the pipeline, up to a report.",
)
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --pipeline: directory for all results, new or empty. [default: a new one in the system's "
    "directory for temporary files]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
def demo(
    upstream: str | None, seconds: float | None, of_pipeline: bool, directory: Path | None, as_json: bool
) -> None:
    """Run producers and consumers through Weir, first without quotas, then under quotas.

    Exit code 0 if each exceeds its quota before and is within 20 % of it after, 1 if not, 2 if the
    demonstration cannot run. With --pipeline: 0 if a replay under the quotas in force computes the recorded
    throttle times within 2 %.
    """
    if directory is not None and not of_pipeline:
        raise click.UsageError("--directory needs --pipeline")
    if of_pipeline and seconds is not None and seconds < PIPELINE_S_MIN:
        raise click.UsageError(f"--for is {seconds:g}, must be at least {PIPELINE_S_MIN} with --pipeline")
    before = signal.signal(signal.SIGTERM, _interrupted)
    try:
        if of_pipeline:
            passed = _run_jobs(upstream, seconds or 30, directory, as_json)
        else:
            passed = _run(upstream, seconds or 15, as_json)
    except (DemoError, PipelineError) as error:
        click.echo(f"weir: {error}", err=True)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        click.echo("stopped; nothing is left running", err=True)
        sys.exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)
    sys.exit(DONE if passed else FAILED)


def _run(upstream: str | None, seconds: float, as_json: bool) -> bool:
    if find_spec("confluent_kafka") is None:
        raise DemoError("the demonstration needs confluent-kafka: install it beside Weir, or use `make demo`")
    from weir.demo.run import run
    from weir.demo.screens import screen

    return run(upstream, seconds, screen(json=as_json))


def _run_jobs(upstream: str | None, seconds: float, directory: Path | None, as_json: bool) -> bool:
    from weir.cli.pipeline.demo import run_jobs  # Spark

    return run_jobs(upstream, seconds, directory, is_json=as_json)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at a signal, so that the demonstration stops its processes and deletes its
    topics as after Ctrl-C.
    """
    raise KeyboardInterrupt
