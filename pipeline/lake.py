"""Where the pipeline's tables are: one root, local or on any file system that Spark can write to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lake:
    """The paths below a root, such as `/var/lib/weir/usage` or `s3a://bucket/usage`."""

    root: str

    def path(self, *parts: str) -> str:
        """A path below the root."""
        return "/".join((self.root.rstrip("/"), *parts))

    @property
    def usage(self) -> str:
        """Ingested usage records, by day and batch (`tables.USAGE`)."""
        return self.path("usage")

    @property
    def trace(self) -> str:
        """Ingested traces of requests, by day and batch (`tables.TRACE`)."""
        return self.path("trace")

    def late(self, kind: str) -> str:
        """Records of a kind (`usage` or `trace`) that came after the watermark, by batch; same columns."""
        return self.path("late", kind)

    def malformed(self, kind: str) -> str:
        """Lines that are no records of a kind, by batch (`tables.MALFORMED`)."""
        return self.path("malformed", kind)

    def ledger(self, kind: str) -> str:
        """What each batch of a kind has read and written."""
        return self.path("ledger", kind)

    def checkpoint(self, kind: str) -> str:
        """Spark's own notes on what of a source was read."""
        return self.path("checkpoint", kind)

    def rollup(self, period: str) -> str:
        """Use by entity and `hour` or `day`, partitioned by day (`tables.ROLLUP`)."""
        return self.path("rollup", period)

    @property
    def rolled(self) -> str:
        """Which batches of usage the roll-ups are made of."""
        return self.path("rollup", "source")

    def lock(self, job: str) -> str:
        """What a job holds while it writes, so that two of them do not write one table."""
        return self.path(f".weir-{job}-lock")

    @property
    def recommendation(self) -> str:
        """The latest recommendation (`tables.RECOMMENDATION`)."""
        return self.path("recommendation")

    @property
    def replay(self) -> str:
        """The latest replay: hours of use under each candidate (`tables.REPLAY`)."""
        return self.path("replay")
