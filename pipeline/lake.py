"""The paths of the pipeline's tables below one root, local or on any file system that Spark can write to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lake:
    """The paths below a root, such as `/var/lib/weir/usage` or `s3a://bucket/usage`."""

    root: str

    def path(self, *parts: str) -> str:
        """Return a path below the root."""
        return "/".join((self.root.rstrip("/"), *parts))

    @property
    def usage(self) -> str:
        """Path of ingested usage records, by day and batch (`tables.USAGE`)."""
        return self.path("usage")

    @property
    def trace(self) -> str:
        """Path of ingested request traces, by day and batch (`tables.TRACE`)."""
        return self.path("trace")

    def late(self, kind: str) -> str:
        """Return the path of records (`usage` or `trace`) older than the watermark, by batch; same
        columns.
        """
        return self.path("late", kind)

    def malformed(self, kind: str) -> str:
        """Return the path of lines that are not valid records, by batch (`tables.MALFORMED`)."""
        return self.path("malformed", kind)

    def ledger(self, kind: str) -> str:
        """Return the path of the counts of each batch (`pipeline.ingest.ledger.LEDGER`)."""
        return self.path("ledger", kind)

    def checkpoint(self, kind: str) -> str:
        """Return the path of Spark's streaming checkpoint."""
        return self.path("checkpoint", kind)

    def rollup(self, period: str) -> str:
        """Return the path of usage by entity and `hour` or `day`, partitioned by day (`tables.ROLLUP`)."""
        return self.path("rollup", period)

    @property
    def rolled(self) -> str:
        """Path of the batches that each day's roll-ups contain (`tables.ROLLED`)."""
        return self.path("rollup", "source")

    def lock(self, job: str) -> str:
        """Return the path of the lock that a job holds while it writes."""
        return self.path(f".weir-{job}-lock")

    @property
    def recommendation(self) -> str:
        """Path of the latest recommendation (`tables.RECOMMENDATION`)."""
        return self.path("recommendation")

    @property
    def replay(self) -> str:
        """Path of the latest replay: hours of usage under each candidate (`tables.REPLAY`)."""
        return self.path("replay")
