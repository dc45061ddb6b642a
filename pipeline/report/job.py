"""Report the tables as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from pyspark.sql import SparkSession

from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome
from weir.pipeline.report.data import clusters, find
from weir.pipeline.report.model import ReportOptions
from weir.pipeline.report.page import render
from weir.pipeline.report.prices import NO_PRICES, Prices
from weir.pipeline.report.showback import bill, csv, listing, showback, showback_of_groups
from weir.pipeline.report.view import missing


def report(
    spark: SparkSession,
    lake: Lake,
    output: str,
    *,
    wanted: ReportOptions,
    made: datetime,
    version: str,
    write: Callable[[str], None],
    prices: Prices | None = None,
    write_csv: Callable[[str], None] | None = None,
    write_group_csv: Callable[[str], None] | None = None,
) -> Outcome:
    """Query the tables, and pass the report as HTML to `write`, which writes the file `output`. The page
    shows the time `made` and Weir's `version`. With `prices`, page and outcome have the amounts of entities.
    `write_csv` gets the use of all entities as CSV, `write_group_csv` that of all groups. Return the outcome
    of the job.
    """
    found = find(spark, lake, wanted)
    listings = []
    if prices or write_csv or write_group_csv:
        used = showback(spark, lake, wanted, prices or NO_PRICES)
        groups = showback_of_groups(spark, lake, wanted, prices or NO_PRICES)
        for write_rows, rows in ((write_csv, used), (write_group_csv, groups)):
            if write_rows:
                write_rows(csv(rows if prices else rows.drop("amount")))
        if prices:
            found = replace(found, bill=bill(used, groups, prices))
            listings.append(listing(used, prices))
            listings += [listing(groups, prices, "groups")] if groups.height else []
    write(render(found, made=made, version=version))
    notes = list(missing(found).values())
    if found.use is None and (others := clusters(spark, lake)):
        notes.append(f"There are roll-ups for these clusters: {', '.join(others)}.")
    return Outcome(
        "report",
        read={"entities": found.use.count if found.use else 0},
        wrote={"pages": 1},
        where={"entities": lake.rollup, "pages": output},
        notes=tuple(notes),
        listings=tuple(listings),
    )
