"""The Spark session that all jobs use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_days_are_utc_days(spark: SparkSession) -> None:
    (row,) = spark.sql("select cast(timestamp_millis(1700006399999) as date) day").collect()
    assert str(row.day) == "2023-11-14"
