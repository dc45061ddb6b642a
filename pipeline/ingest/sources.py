"""The sources of records: a directory with Weir's files, or Weir's topics.

A source's stream has one row per line: `value` (the line), `source` (file or offset), `channel` (the part of
the source whose lines are in order, such as a partition) and `taken_ms`, the time (ms) at which Spark began
the batch. Spark stores this time before the batch, so that a repeated batch has the same time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn

from weir.pipeline.files import Files
from weir.pipeline.jars import CONNECTOR
from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BATCH_BYTES: Final = 512 * 1024 * 1024
BATCH_RECORDS: Final = 1_000_000
_PATTERN: Final = r"[*?\[\]{}\\]"
FILE_AGE_MAX: Final = "365d"
"""Age of a file, relative to the newest file, beyond which Spark forgets and ignores it."""


class Source(Protocol):
    """Interface of the places that Weir's usage and trace records are read from: `Directory` and `Topic`."""

    def name(self, kind: str) -> str:
        """Return the text that identifies where records of a kind (usage or trace) are read from. A lake
        accepts only one source per kind.
        """

    def check(self, spark: SparkSession) -> None:
        """Raise PipelineError if the source cannot be read."""

    def stream(self, spark: SparkSession, kind: str) -> DataFrame:
        """Return a streaming DataFrame with one row per line of a kind, with the columns `value`, `source`,
        `channel` and `taken_ms`.
        """


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of finished files of records. Spark ignores files whose names begin with a dot or an
    underscore.
    """

    path: str
    batch_bytes: int = BATCH_BYTES
    """Approximate size (bytes) of the files in one batch. Files are not split, so that a batch may be larger.
    """
    skip_lost: bool = False
    """True to ignore files that were deleted before they were read."""

    def name(self, kind: str) -> str:
        return f"files {self.path.rstrip('/')}/{kind}-*.jsonl"

    def check(self, spark: SparkSession) -> None:
        if not Files(spark).is_directory(self.path):
            raise PipelineError(f"{self.path}: no such directory; does Weir write usage there yet?")
        if re.search(_PATTERN, self.path):
            raise PipelineError(
                f"{self.path}: Spark takes such a name for a pattern and reads files twice: use a directory "
                "without any of * ? [ ] { } \\ in its path"
            )

    def stream(self, spark: SparkSession, kind: str) -> DataFrame:
        options = {
            "pathGlobFilter": f"{kind}-*.jsonl",
            "maxBytesPerTrigger": str(self.batch_bytes),
            "maxFileAge": FILE_AGE_MAX,
            "lineSep": "\n",
            "ignoreMissingFiles": str(self.skip_lost).lower(),
        }
        lines = spark.readStream.format("text").options(**options).load(self.path)
        return lines.select("value", fn.col("_metadata.file_path").alias("source"), _no_channel(), _taken())


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of usage records, and the topic `<topic>-trace` of trace records, which may be missing."""

    topic: str
    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of Kafka's consumer and admin client."""
    batch_records: int = BATCH_RECORDS
    skip_lost: bool = False
    """True to continue where Kafka has deleted records before they were read."""

    def name(self, kind: str) -> str:
        return f"topic {self._topic(kind)}"

    def check(self, spark: SparkSession) -> None:
        """Do nothing: reading the stream reports a missing topic."""

    def stream(self, spark: SparkSession, kind: str) -> DataFrame:
        options = {f"kafka.{key}": value for key, value in self.properties.items()} | {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self.batch_records),
            "failOnDataLoss": str(not self.skip_lost).lower(),
        }
        # A topic that is subscribed to by name must exist.
        how = "subscribe" if kind == "usage" else "subscribePattern"
        topic = self._topic(kind) if kind == "usage" else re.escape(self._topic(kind))
        try:
            lines = spark.readStream.format("kafka").options(**options).option(how, topic).load()
        except AnalysisException as error:
            if "kafka" not in str(error).lower():
                raise
            raise PipelineError(
                f"Spark has no Kafka connector here: spark-submit --packages {CONNECTOR}"
            ) from None
        return lines.select(
            fn.col("value").cast("string"),
            fn.concat_ws("/", "topic", "partition", "offset").alias("source"),
            fn.col("partition").cast("string").alias("channel"),
            _taken(),
        )

    def _topic(self, kind: str) -> str:
        return self.topic if kind == "usage" else f"{self.topic}-{kind}"


def _no_channel() -> Column:
    return fn.lit("").alias("channel")


def _taken() -> Column:
    return fn.unix_millis(fn.current_timestamp()).alias("taken_ms")
