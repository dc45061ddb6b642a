"""Report the tables as one HTML page that needs no network.

Spark computes a bounded number of values (`data`, `model`); `sections` makes the page from them without
Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

from weir.pipeline.outcome import Outcome
from weir.pipeline.report.data import Wanted, find
from weir.pipeline.report.model import Findings
from weir.pipeline.report.page import render
from weir.pipeline.report.sections import RUN, missing, page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.pipeline.lake import Lake


def report(
    spark: SparkSession,
    lake: Lake,
    output: str,
    *,
    wanted: Wanted,
    made: datetime,
    version: str,
    write: Callable[[str], None],
) -> Outcome:
    """Query the tables, and pass the report as HTML to `write`, which writes the file `output`. The page
    shows the time `made` and Weir's `version`. Return the outcome of the job.
    """
    found = find(spark, lake, wanted)
    made_of = page(found, made=made, version=version)
    write(render(made_of, get_plotlyjs()))
    return Outcome(
        "report",
        read=_read(found),
        wrote={"sections": len(made_of.sections)},
        where={"records": lake.usage, "entities": lake.rollup("hour"), "sections": output},
        notes=tuple(RUN[job] for job in missing(found)),
    )


def _read(found: Findings) -> dict[str, int]:
    read = {"entities": found.overview.entities if found.overview else 0}
    if found.spread:
        rest = found.spread.rest.records if found.spread.rest else 0
        read = {"records": sum(each.records for each in found.spread.brokers) + rest, **read}
    return read
