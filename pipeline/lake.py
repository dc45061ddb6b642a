"""The paths of the pipeline's tables. All are below one root, on any file system that Spark can write to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lake:
    """The paths of all tables below a root, such as `/var/lib/weir/usage` or `s3a://bucket/usage`."""

    root: str

    def path(self, *parts: str) -> str:
        """Return the path below the root that consists of these parts."""
        return "/".join((self.root.rstrip("/"), *parts))

    @property
    def usage(self) -> str:
        """Path of the ingested usage records, partitioned by day and batch (`tables.USAGE`)."""
        return self.path("usage")

    @property
    def trace(self) -> str:
        """Path of the ingested request traces, partitioned by day and batch (`tables.TRACE`)."""
        return self.path("trace")

    def late(self, kind: str) -> str:
        """Return the path of late records of a kind (`usage` or `trace`), in the columns of that kind's
        table, partitioned by batch. A record is late if it is older than the newest record of its stream by
        more than the allowed delay (`pipeline.ingest.ledger`).
        """
        return self.path("late", kind)

    def malformed(self, kind: str) -> str:
        """Return the path of the table with malformed lines of a kind (usage or trace), partitioned by batch
        (`tables.MALFORMED`).
        """
        return self.path("malformed", kind)

    def ledger(self, kind: str) -> str:
        """Return the path of the ledger of a kind (usage or trace): one row per batch, with its counts
        (`pipeline.ingest.ledger.LEDGER`).
        """
        return self.path("ledger", kind)

    def checkpoint(self, kind: str) -> str:
        """Return the path at which Spark's stream of a kind (usage or trace) stores which batches it has
        planned and completed.
        """
        return self.path("checkpoint", kind)

    def rollup(self, period: str) -> str:
        """Return the path of the usage of each entity by period (`hour` or `day`), partitioned by day
        (`tables.ROLLUP`).
        """
        return self.path("rollup", period)

    @property
    def rolled(self) -> str:
        """Path of a table with one row per day that was rolled up: the number and size of the day's usage
        files, and a digest of their names. A difference from the present files shows that the day must be
        rolled up again.
        """
        return self.path("rollup", "source")

    def lock(self, job: str) -> str:
        """Return the path of the lock file that a job holds while it writes tables."""
        return self.path(f".weir-{job}-lock")

    @property
    def recommendation(self) -> str:
        """Path of the proposals of the latest recommendation (`tables.RECOMMENDATION`)."""
        return self.path("recommendation")

    @property
    def replay(self) -> str:
        """Path of the latest replay: one row per budget and hour under each candidate (`tables.REPLAY`)."""
        return self.path("replay")
