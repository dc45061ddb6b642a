"""Usage records and traces whose client-ids say in which batch ingest takes them, and which row they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as fn

from tests.pipeline.usage_files import NOON_MS, clients, traced, usage
from weir.pipeline import tables
from weir.pipeline.lake import Lake, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000


class NumberedBatches(NamedTuple):
    """Batches of `rows` records of one kind (usage or trace). Client-ids begin with the padding."""

    kind: str
    rows: int
    padding: str = ""

    def lines(self, batch: int) -> list[bytes]:
        """Return the records of a batch, of two days; batches are of different days."""
        return [self._line(batch, row) for row in range(self.rows)]

    def seen(self, spark: SparkSession, lake: Lake) -> set[int]:
        """Return the numbers of the batches in the table. Fails if the table has a part of a batch."""
        name = fn.substring("client_id", len(self.padding) + 1, 100)
        batch = fn.split(name, "-")[0].cast("int").alias("batch")
        rows = read(spark, lake.path(self.kind), tables.USAGE).groupBy(batch).count().collect()
        assert {row["count"] for row in rows} <= {self.rows}, "a part of a batch"
        return {row["batch"] for row in rows}

    def check_table(self, spark: SparkSession, lake: Lake, batches: Iterable[int]) -> None:
        """Fail unless the table has each record of these batches once, and no other record."""
        names = Counter(self._name(batch, row) for batch in batches for row in range(self.rows))
        assert clients(spark, lake.path(self.kind)) == names

    def _name(self, batch: int, row: int) -> str:
        return f"{self.padding}{batch}-{row}"

    def _line(self, batch: int, row: int) -> bytes:
        time_ms, name = NOON_MS + (batch + row % 2) * DAY_MS, self._name(batch, row)
        if self.kind == "usage":
            return usage(time_ms, name)
        trace = msgspec.structs.replace(traced(time_ms), client_id=name, correlation_id=row)
        return msgspec.json.encode(trace)


def rejected_lines(spark: SparkSession, lake: Lake) -> Counter[str]:
    return Counter(row["line"] for row in read(spark, lake.rejected, tables.REJECTED).collect())
