"""Buckets of packed rows, and the partitions that Spark chooses for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as fn

from weir.pipeline.arrow import keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("partitions", [1, 7, 48])
def test_buckets_numbered_by_keys_are_in_a_partition_each(spark: SparkSession, partitions: int) -> None:
    buckets = spark.createDataFrame([(key,) for key in keys(spark, partitions)], "bucket long")
    placed = buckets.repartition(partitions, "bucket").select(fn.spark_partition_id().alias("partition"))
    assert sorted(row.partition for row in placed.collect()) == list(range(partitions))
