"""The Spark session that all jobs run in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}


@contextmanager
def session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for one job, stopped at the end; `master` None leaves the choice to spark-submit.

    Raises PipelineError if Spark or Java is missing.
    """
    from pipeline.java import prepare

    with tempfile.TemporaryDirectory(prefix="weir-java-") as directory:
        prepare(Path(directory))
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(f"weir {name}")
        if master is not None:
            builder = builder.master(master)
        for key, value in {**SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()
