"""The result of the pipeline demonstration: the accuracy of the replay, and the effect of the recommended
quotas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weir.pipeline.lake import Lake, read
from weir.pipeline.replay.candidates import RECORDED
from weir.pipeline.replay.summary import Range, bounds
from weir.pipeline.tables import REPLAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weir.demo.pipeline_record import Files

TOLERANCE: Final = 0.02
"""Accepted relative deviation of the replayed throttle times from the recorded ones, if all requests were
recorded.
"""


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """Throttle times (s), summed over all clients: recorded by Weir, and computed by the replay."""

    recorded_s: float
    in_force_s: float
    """Throttle time (s) replayed under the quotas that were in force."""
    recommended: Range
    """Bounds of the throttle time (s) replayed under the recommended quotas: clients that were held back may
    demand more than they used.
    """

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
        return replayed, self._recommended()

    def _recommended(self) -> str:
        lower_s, upper_s = self.recommended
        if lower_s == upper_s:
            return f"Under the recommended quotas it would have been {lower_s:.1f} s."
        why = "the quotas held clients back, so nobody knows how much more they would have sent."
        if upper_s is None:
            return f"Under the recommended quotas it may be {lower_s:.1f} s or any longer time: {why}"
        return f"Under the recommended quotas it may be anything from {lower_s:.1f} to {upper_s:.1f} s: {why}"


def verdict(spark: SparkSession, files: Files) -> ReplayVerdict:
    """Return the sums of throttle times in the table of the latest replay."""
    hours = read(spark, Lake(str(files.lake)).replay, REPLAY)
    summed = hours.groupBy("candidate").agg(*bounds("throttle_ms"))
    found = {row.candidate: Range.of_ms(row) for row in summed.collect()}  # three rows
    recorded, in_force, recommended = (
        found.get(name, Range(0.0, 0.0)) for name in (RECORDED, files.quotas.name, files.recommended.name)
    )
    return ReplayVerdict(recorded.lower_s, in_force.lower_s, recommended)
