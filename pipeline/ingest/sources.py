"""The sources of records: a directory with Weir's files, or Weir's topics.

A source's stream has the columns `parse.SOURCE`. `taken_ms` is the time (ms) at which Spark began the batch;
Spark stores this time before the batch, so that a repeated batch has the same time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from weir.pipeline.ingest.lines import COMPRESSIONS
from weir.pipeline.outcome import PipelineError

BATCH_BYTES: Final = 512 * 1024 * 1024
BATCH_RECORDS: Final = 1_000_000
_PATTERN: Final = r"[*?\[\]{}\\]"
_FOR_EVER: Final = "3650000d"
"""Age of a file, relative to the newest file, beyond which Spark would ignore it: ten thousand years, because
one file with a time in the future must not hide all others.
"""
FILE_BYTES_MAX: Final = 256 << 20
"""Maximum size (bytes) of a local file that is read."""
REMOTE_BYTES_MAX: Final = 64 << 20
"""Maximum size (bytes) of another file that is read: Spark holds several copies of it in memory."""
_UNFINISHED_S: Final = 3600
"""Age (s) up to which a temporary file may still be written by its writer."""
_NAMED: Final = 3
_FILE: Final = "path string, modificationTime timestamp, length bigint, content binary"
"""Columns of Spark's format `binaryFile`."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of finished files of records. Spark ignores names that begin with a dot or underscore."""

    path: str
    batch_bytes: int = BATCH_BYTES
    """Approximate size (bytes) of the files in one batch. Files are not split: a batch may be larger."""
    skip_lost: bool = False
    """True to ignore files that were deleted before they were read."""

    def name(self, kind: str) -> str:
        """Return the text that identifies the place from which records of a kind are read."""
        return f"files {self.path.rstrip('/')}/{kind}-*.jsonl"

    def stream(self, spark: SparkSession, kind: str) -> DataFrame:
        """Return a streaming DataFrame of a kind with the columns `parse.SOURCE`."""
        options = {
            "pathGlobFilter": f"{kind}-*{{{','.join(COMPRESSIONS)}}}",
            "maxBytesPerTrigger": str(self.batch_bytes),
            "maxFileAge": _FOR_EVER,
            "ignoreMissingFiles": str(self.skip_lost).lower(),
        }
        files = spark.readStream.format("binaryFile").schema(_FILE).options(**options).load(self.path)
        small = files.where(fn.col("length") <= self._bytes_max)
        content = fn.lit(None).cast("binary").alias("content") if self._is_local else fn.col("content")
        return small.select(fn.col("path").alias("source"), content, _taken())

    def unread(self, spark: SparkSession) -> Iterator[str]:
        """Yield a line per sort of content that is not read. Raises PipelineError if none can be read."""
        if re.search(_PATTERN, self.path):
            raise PipelineError(
                f"{self.path}: Spark takes such a name for a pattern and reads files twice: use a directory "
                "without any of * ? [ ] { } \\ in its path"
            )
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
        try:
            files = reader.load(self.path).select("path", "length", "modificationTime")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise PipelineError(f"{self.path}: no such directory; does Weir write usage there yet?") from None
        below = fn.substring_index("path", self.path.rstrip("/") + "/", -1)
        found = files.select(self._why(below).alias("why"), below.alias("name")).where("why is not null")
        first = fn.slice(fn.sort_array(fn.collect_list("name")), 1, _NAMED)
        rows = found.groupBy("why").agg(fn.count("*"), first).orderBy("why")
        for why, count, names in rows.collect():
            sort, more = "file" if count == 1 else "files", ", …" if count > _NAMED else ""
            yield f"not read: {count:,} {sort} {why}: {', '.join(names)}{more}"

    @property
    def _is_local(self) -> bool:
        """True if Python can open the files, and therefore reads them piece by piece."""
        return "://" not in self.path

    @property
    def _bytes_max(self) -> int:
        return FILE_BYTES_MAX if self._is_local else REMOTE_BYTES_MAX

    def _why(self, name: Column) -> Column:
        """Return the reason why a file is not read, by its path below the directory; null for other files."""
        age = fn.unix_timestamp() - fn.unix_timestamp("modificationTime")
        endings = "|".join(re.escape(end) for end in COMPRESSIONS)
        return (
            fn.when(name.contains("/"), "in subdirectories")
            .when(name.rlike(r"\.(tmp|part)$") & (age < _UNFINISHED_S), None)
            .when(name.rlike(r"\.(tmp|part)$"), "unfinished for over an hour")
            .when(~name.rlike(rf"^(usage|trace)-.*({endings})$"), "with other names")
            .when(fn.col("length") > self._bytes_max, f"larger than {self._bytes_max} bytes")
        )


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
                'Spark has no Kafka connector here: spark-submit --jars "$(weir pipeline --spark-jars)"'
            ) from None
        source = fn.concat_ws("/", "topic", "partition", "offset").alias("source")
        return lines.select(source, fn.col("value").alias("content"), _taken())

    def _topic(self, kind: str) -> str:
        return self.topic if kind == "usage" else f"{self.topic}-{kind}"


Source: TypeAlias = Directory | Topic
"""A place that Weir's usage and trace records are read from."""


def _taken() -> Column:
    return fn.unix_millis(fn.current_timestamp()).alias("taken_ms")
