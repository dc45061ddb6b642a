"""Run the pipeline's jobs over the recorded usage, one after the other in one Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from weir.demo.client_specs import CLIENTS, quota_table
from weir.pipeline.ingest.job import ingest
from weir.pipeline.ingest.sources import Directory
from weir.pipeline.lake import Lake
from weir.pipeline.recommend.job import recommend
from weir.pipeline.recommend.plan import RecommendationPlan
from weir.pipeline.replay.job import ReplayOptions, replay
from weir.pipeline.report.job import report
from weir.pipeline.report.model import ReportOptions
from weir.pipeline.rollup.job import rollup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.demo.pipeline_record import Files
    from weir.pipeline.outcome import Outcome

Job: TypeAlias = "Callable[[SparkSession], Outcome]"

SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",  # few suffice for half a minute of records
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",  # one minute is too short to optimize code
}
"""Settings of the Spark session."""


def jobs(files: Files, version: str) -> dict[str, Job]:
    """Return the pipeline's jobs by name, in the order in which they must run. `version` is Weir's version,
    which the report shows.
    """
    lake = Lake(str(files.lake))
    now = datetime.now(UTC)
    stop = threading.Event()

    def ingested(spark: SparkSession) -> Outcome:
        outcome = ingest(spark, lake, Directory(str(files.records)), stop=stop)
        if stop.is_set():  # a signal arrived, and ingest has finished its batch
            raise KeyboardInterrupt
        return outcome

    def rolled_up(spark: SparkSession) -> Outcome:
        return rollup(spark, lake)

    def recommended(spark: SparkSession) -> Outcome:
        quotas, name = quota_table(CLIENTS), files.quotas.name
        plan = RecommendationPlan(now=now, output=str(files.recommended), current=quotas, current_name=name)
        return recommend(spark, lake, plan, lambda lines: _write(files.recommended, "".join(lines)))

    def replayed(spark: SparkSession) -> Outcome:
        options = ReplayOptions(source="trace")
        return replay(spark, lake, [files.quotas, files.recommended], options)

    def reported(spark: SparkSession) -> Outcome:
        page = str(files.report)
        return report(
            spark,
            lake,
            page,
            wanted=ReportOptions(level="client-id"),  # every user is ANONYMOUS
            made=now,
            version=version,
            write=lambda text: _write(files.report, text),
        )

    return {
        "ingest": ingested,
        "rollup": rolled_up,
        "recommend": recommended,
        "replay": replayed,
        "report": reported,
    }


def _write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
