"""The result of the pipeline demonstration: the accuracy of the replay, and the effect of the recommended
quotas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from weir.pipeline.lake import Lake
from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.tables import REPLAY, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.demo.pipeline_record import Files

TOLERANCE: Final = 0.02
"""Accepted relative deviation of the replayed throttle times from the recorded ones, if all requests were
recorded.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Throttle times (s), summed over all clients: recorded by Weir, and computed by the replay."""

    recorded_s: float
    in_force_s: float
    """Throttle time (s) replayed under the quotas that were in force."""
    recommended_s: float
    """Throttle time (s) replayed under the recommended quotas."""

    @property
    def deviation(self) -> float:
        """Relative difference between the replayed and the recorded throttle time: 0.01 if the replayed time
        is 1 % longer.
        """
        return self.in_force_s / self.recorded_s - 1 if self.recorded_s else 0.0

    @property
    def passed(self) -> bool:
        """True if clients were throttled, and the replayed throttle time differs from the recorded one by at
        most `TOLERANCE`.
        """
        return self.recorded_s > 0 and abs(self.deviation) <= TOLERANCE

    def lines(self) -> tuple[str, str]:
        """Return two sentences: the accuracy of the replay, and the throttle time under the recommended
        quotas.
        """
        passed = "Passed" if self.passed else "Failed"
        off = f"{100 * self.deviation:+.2f} %" if self.recorded_s else "no client was throttled"
        replayed = (
            f"{passed}: clients were told to wait {self.recorded_s:.1f} s in all. Replayed from every "
            f"request, under the same quotas, it is {self.in_force_s:.1f} s ({off})."
        )
        return replayed, f"Under the recommended quotas it would have been {self.recommended_s:.1f} s."


def verdict(spark: SparkSession, files: Files) -> Verdict:
    """Return the sums of throttle times in the table of the latest replay."""
    hours = read(spark, Lake(str(files.lake)).replay, REPLAY)
    summed = hours.groupBy("candidate").agg((F.sum("throttle_ms") / 1000).alias("s"))
    found = {row.candidate: float(row.s or 0.0) for row in summed.collect()}  # three rows
    candidates = (RECORDED, files.quotas.name, files.recommended.name)
    return Verdict(*(found.get(name, 0.0) for name in candidates))
