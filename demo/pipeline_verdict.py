"""What the demonstration shows, in two lines: how near the replay is, and what the proposal would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from pipeline.lake import Lake
from pipeline.replay.candidates import RECORDED
from pipeline.tables import REPLAY, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from demo.pipeline_record import Files

TOLERANCE: Final = 0.02
"""How far a replay of every request may be from what was recorded under the same quotas."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Throttle times that all clients were told, added up."""

    recorded_s: float
    in_force_s: float
    """Replayed, under the quotas that were in force."""
    recommended_s: float
    """Replayed, under those that are recommended."""

    @property
    def deviation(self) -> float:
        """How far the replay is from the records: 0.01 is 1 % more."""
        return self.in_force_s / self.recorded_s - 1 if self.recorded_s else 0.0

    @property
    def passed(self) -> bool:
        """Whether clients were throttled, and the replay says so too."""
        return self.recorded_s > 0 and abs(self.deviation) <= TOLERANCE

    def lines(self) -> tuple[str, str]:
        """For people."""
        passed = "Passed" if self.passed else "Failed"
        off = f"{100 * self.deviation:+.2f} %" if self.recorded_s else "nobody was throttled"
        replayed = (
            f"{passed}: clients were told to wait {self.recorded_s:.1f} s in all. Replayed from every "
            f"request, under the same quotas, it is {self.in_force_s:.1f} s ({off})."
        )
        return replayed, f"Under the recommended quotas it would have been {self.recommended_s:.1f} s."


def verdict(spark: SparkSession, files: Files) -> Verdict:
    """By the table of the latest replay."""
    hours = read(spark, Lake(str(files.lake)).replay, REPLAY)
    summed = hours.groupBy("candidate").agg((F.sum("throttle_ms") / 1000).alias("s"))
    found = {row.candidate: float(row.s or 0.0) for row in summed.collect()}  # three
    candidates = (RECORDED, files.quotas.name, files.recommended.name)
    return Verdict(*(found.get(name, 0.0) for name in candidates))
