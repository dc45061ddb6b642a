"""Two runs of a job on one lake at once: both would write the same table, and double or lose its rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.replay_inputs import SUNDAY_MS, file, put, used
from weir.pipeline import tables
from weir.pipeline.files import Files
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.plan import Plan
from weir.pipeline.replay.job import replay
from weir.pipeline.rollup.job import rollup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _nothing(_lines: object) -> None:
    """Discard the lines of a quota file."""


JOBS: dict[str, Callable[[SparkSession, Lake, Path], Outcome]] = {
    "rollup": lambda spark, lake, _quotas: rollup(spark, lake),
    "recommend": lambda spark, lake, _quotas: recommend(spark, lake, Plan(now=datetime.now(UTC)), _nothing),
    "replay": lambda spark, lake, quotas: replay(spark, lake, [quotas]),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_second_of_two_jobs_at_once_is_refused_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    put(spark, lake, [used(SUNDAY_MS, charged_bytes=10)])
    quotas = file(tmp_path, "q.toml", "")
    before = {path.name for path in Path(lake.root).iterdir()}
    with (
        Files(spark).locked(lake.lock(name), name),
        pytest.raises(PipelineError, match=f"another {name} is running here"),
    ):
        JOBS[name](spark, lake, quotas)
    assert {path.name for path in Path(lake.root).iterdir()} == before | {f".weir-{name}-lock"}


def test_a_job_lock_is_no_part_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    put(spark, lake, [used(SUNDAY_MS, charged_bytes=10)])
    for _twice in range(2):
        rollup(spark, lake, again=True)
    assert tables.read(spark, lake.rollup("hour"), tables.ROLLUP).count() == 3
