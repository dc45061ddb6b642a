"""Sessions at a Spark Connect server, which has Java, Delta Lake and all jars itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER: Final = "sc://"
"""Beginning of the master URL of a Spark Connect server."""


@contextmanager
def connected(url: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a session at the server `url`, and end the session after the block. Settings that only a starting
    Spark takes stay as the server has them. Raises PySparkException if no session begins.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    try:
        for name, value in settings.items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        yield spark
    finally:
        spark.stop()
