"""Jobs at a Spark Connect server have the results of jobs with a Spark of their own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from tests.integration.pipeline_jobs import Ended, commands
from tests.pipeline.conftest import CommandsHere
from tests.pipeline.connect_server import connect_server
from tests.pipeline.killed import content
from tests.pipeline.usage_rows import DAY_MS, ingest, record
from weir.cli.main import weir
from weir.pipeline import tables
from weir.pipeline.lake import Lake
from weir.pipeline.rollup.columns import ROLLUP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS: Final = 3_600_000
JOBS: Final = (
    ("rollup", "--all"),
    ("recommend", "--output", "new.toml"),
    ("replay", "candidate.toml"),
    ("report", "--output", "page.html"),
    ("maintain",),
)
TABLES: Final = {
    "usage": tables.USAGE,
    "rollup": ROLLUP,
    "recommendation": tables.RECOMMENDATION,
    "replay": tables.REPLAY,
}
TIME_OF_RUN: Final = re.compile(r"(?!2026-03)\d{4}-\d\d-\d\d \d\d:\d\d")
TIME_TAKEN: Final = re.compile(r"done in [\d.]+ s|" + TIME_OF_RUN.pattern)


def arguments(master: str, directory: Path) -> list[tuple[str, ...]]:
    options = ("--lake", str(directory / "lake"), "--master", master)
    return [("pipeline", job, *options, *more) for job, *more in JOBS]


def comparable(ended: Iterable[Ended], directory: Path) -> list[Ended]:
    """Return the ends of jobs without the directory and times."""
    return [
        Ended(exit_code, TIME_TAKEN.sub("…", output).replace(str(directory), ""), errors)
        for exit_code, output, errors in ended
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)  # Java starts for the server
def test_jobs_at_a_spark_connect_server_have_the_results_of_jobs_without(
    spark: SparkSession, commands_here: CommandsHere, tmp_path: Path
) -> None:
    with_server, without = tmp_path / "with", tmp_path / "without"
    times_ms = [day * DAY_MS + hour * HOUR_MS for day in range(3) for hour in range(4)]
    amount = {"requests": 3, "bytes_in": 4_000_000, "charged_bytes": 4_000_000}
    ingest(
        spark,
        Lake(str(with_server / "lake")),
        [record(time_ms, client_id=name, **amount) for time_ms in times_ms for name in "ab"],
    )
    (with_server / "candidate.toml").write_text("[[quota]]\nclient_id = 'a'\nproducer_byte_rate = 300_000\n")
    shutil.copytree(with_server, without)
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server") as url:
        ended = comparable(commands(*arguments(url, with_server), directory=with_server), with_server)
    assert [(each.exit_code, each.errors) for each in ended] == [(0, "")] * len(JOBS), ended
    assert ended == comparable(commands_here(arguments("local[2]", without), without), without)
    for name, columns in TABLES.items():
        rows = [content(spark, str(each / "lake" / name), columns) for each in (with_server, without)]
        assert rows[0] == rows[1] != (), name
    for name in ("new.toml", "page.html"):
        texts = [TIME_OF_RUN.sub("…", (each / name).read_text()) for each in (with_server, without)]
        assert texts[0] == texts[1], name


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (("ingest", "--files", "records"), "ingest cannot run at Spark Connect: leave out --master sc://"),
        (("rollup",), "rollup cannot follow new usage at Spark Connect: give --days FROM..TO, or --all"),
    ],
)
def test_jobs_that_follow_a_stream_refuse_spark_connect(job: tuple[str, ...], message: str) -> None:
    options = ("--lake", "lake", "--master", "sc://127.0.0.1:15002")
    done = CliRunner().invoke(weir, ["pipeline", *job, *options])
    assert (done.exit_code, done.output) == (2, f"weir: {message}\n")
