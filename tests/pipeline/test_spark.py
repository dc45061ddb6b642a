"""The Spark session that all jobs use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_days_are_utc_days(spark: SparkSession) -> None:
    (row,) = spark.sql("select cast(timestamp_millis(1700006399999) as date) day").collect()
    assert str(row.day) == "2023-11-14"


def test_a_connection_to_java_that_is_cut_is_not_logged(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by Ctrl-C in the middle of a call: the job itself says what happened, in one line."""
    assert spark.version
    logging.getLogger("py4j.clientserver").error("Exception occurred while shutting down connection")
    assert capsys.readouterr().err == ""
