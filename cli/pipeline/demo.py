"""`weir demo --pipeline`: half a minute of real clients, and all jobs over their usage records."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from weir.cli.pipeline.run import NEEDED, in_session, show
from weir.cli.progress import Bar
from weir.demo.errors import DemoError
from weir.pipeline.outcome import Outcome
from weir.proxy.build import VERSION

if TYPE_CHECKING:
    from weir.demo.pipeline_record import Files
    from weir.demo.pipeline_verdict import ReplayVerdict

MASTER: Final = "local[*]"


def run_jobs(upstream: str | None, seconds: float, directory: Path | None, *, is_json: bool) -> bool:
    """Record real clients behind Weir for this time, and run all jobs over the records, up to the report.
    Return True if a replay under the quotas in force computes the recorded throttle times within 2 %. Raises
    DemoError and PipelineError.
    """
    missing = [module for module in ("confluent_kafka", "jinja2", *NEEDED) if find_spec(module) is None]
    if missing:
        raise DemoError(
            f"the demonstration needs {', '.join(missing)}: pip install '.[demo,pipeline]' in a checkout, "
            "or use `make pipeline-demo`"
        )
    from weir.demo.pipeline_jobs import SETTINGS, jobs
    from weir.demo.pipeline_record import Files
    from weir.demo.pipeline_verdict import verdict
    from weir.pipeline.spark import session

    with _kept(directory) as root:
        files = Files(root)
        say = Said(quiet=is_json)
        say(f"Everything is put into {root}, and stays there.")
        _record(files, upstream, seconds, say)
        say("All requests are recorded; now Spark's jobs.")
        outcomes = []
        with session("demo", master=MASTER, settings=SETTINGS) as spark:
            for name, job in jobs(files, VERSION).items():
                outcomes.append(in_session(name, spark, job))
                if not is_json:
                    click.echo()
                    show(outcomes[-1], as_json=False)
            found = verdict(spark, files)
        say("", *found.lines(), f"The report: {files.report}")
        if is_json:
            click.echo(_as_json(files, outcomes, found))
    return found.passed


class Said:
    """Function object that prints lines for people; with `quiet` it prints nothing, because a program reads
    the output.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, *lines: str) -> None:
        if not self._quiet:
            click.echo("\n".join(lines))


@contextmanager
def _kept(directory: Path | None) -> Iterator[Path]:
    """Yield the directory for the files of the demonstration: `directory`, which must be empty or missing, or
    a new temporary one. If the block fails, remove a directory that this function created. Raises DemoError.
    """
    is_new = directory is None or not directory.exists()
    try:
        if directory is None:
            directory = Path(tempfile.mkdtemp(prefix="weir-pipeline-demo-"))
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise DemoError(f"{directory}: {error.strerror}: check --directory") from None
    if not is_empty:
        raise DemoError(f"{directory} is not empty: name another --directory")
    try:
        yield directory.resolve()
    except BaseException:
        if is_new:
            shutil.rmtree(directory, ignore_errors=True)
        raise


def _record(files: Files, upstream: str | None, seconds: float, say: Said) -> None:
    from weir.demo.pipeline_record import record

    told = ""

    def shown(cluster: str, elapsed_s: float) -> None:
        nonlocal told
        if not told:
            told = f"{cluster}, Weir in front, and real clients for {seconds:g} s; every request is recorded."
            say(told)
        bar.say(round(elapsed_s), round(seconds), "recording")

    with Bar() as bar:
        record(upstream, seconds, files, shown)


def _as_json(files: Files, outcomes: list[Outcome], found: ReplayVerdict) -> bytes:
    summary = {
        "directory": str(files.directory),
        "report": str(files.report),
        "recommended": str(files.recommended),
        "recorded_throttle_s": found.recorded_s,
        "replayed_throttle_s": found.in_force_s,
        "recommended_throttle_s": found.recommended,
        "deviation": found.deviation,
        "passed": found.passed,
        "jobs": [asdict(outcome) for outcome in outcomes],
    }
    return msgspec.json.encode(summary)
