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


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ("", "KeyboardInterrupt while sending command."),
        ("", "Exception while sending command."),
        ("py4j.clientserver", "Exception occurred while shutting down connection"),
    ],
)
def test_a_call_to_java_that_ctrl_c_cuts_off_is_not_logged(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, logger: str, message: str
) -> None:
    """Py4J also raises these errors, and the job reports them in one line; other errors of Py4J are
    logged.
    """
    assert spark.version
    logging.getLogger(logger).error(message)
    logging.getLogger(logger).error("Unknown command")
    assert caplog.messages == ["Unknown command"]
