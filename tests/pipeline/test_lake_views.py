"""deploy/lake: the views and the board's queries run in Spark SQL over tables that the jobs write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.pipeline.usage_rows import FIRST_MS, ingest, record
from weir.pipeline import tables
from weir.pipeline.lake import Lake, empty, replace
from weir.pipeline.rollup.job import rollup
from weir.usage.records import ByQuota

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2] / "deploy/lake"
BOARD: Final[dict[str, Any]] = json.loads((ROOT / "board.json").read_text("utf-8"))
VIEWS: Final = (ROOT / "views.sql").read_text("utf-8")
HOUR_MS: Final = 3_600_000


def queries() -> dict[str, str]:
    values = {"$cluster": "default", "$__from": str(FIRST_MS), "$__to": str(FIRST_MS + HOUR_MS - 1)}
    found = {}
    for panel in BOARD["panels"]:
        (target,) = panel["targets"]
        sql = re.sub(r"\$\w+", lambda match: values[match[0]], target["rawSQL"])
        found[panel["title"]] = sql
    return found


@pytest.mark.spark
def test_the_boards_queries_run_over_the_views(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    throttle = {**dict.fromkeys(ByQuota.__struct_fields__, 0), "producer_byte_rate": 500}
    produced = {"requests": 1, "bytes_in": 36_000, "charged_bytes": 36_000}
    made = [record(0, broker=1, throttle_ms=throttle, **produced), record(0, broker=2, **produced)]
    ingest(spark, lake, [*made, record(HOUR_MS, broker=1, **produced)])
    rollup(spark, lake)
    replace(empty(spark, tables.RECOMMENDATION), lake.recommendation)
    replace(empty(spark, tables.REJECTED), lake.rejected)
    for name in ("rollup", "recommendation", "rejected"):
        spark.read.format("delta").load(lake.path(name)).createOrReplaceTempView(name)
    statements = [part for part in re.sub(r"--.*", "", VIEWS).split(";") if part.strip()]
    for statement in statements:
        spark.sql(statement.replace("REPLACE VIEW", "REPLACE TEMPORARY VIEW"))
    rows = {title: spark.sql(sql).collect() for title, sql in queries().items()}
    assert [(row.metric, row.value) for row in rows["Produced to each broker"]] == [
        ("broker 1", 10.0),
        ("broker 2", 10.0),
    ]
    assert [(row.metric, row.value) for row in rows["Clients told to wait"]] == [
        ("clients", 1.0),
        ("throttle time (s)", 0.5),
    ]
    (client,) = rows["Busiest clients"]
    assert (client.principal, client.bytes, client.producer_byte_rate) == ("u", 72_000, 3600)
