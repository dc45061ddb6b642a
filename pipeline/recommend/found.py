"""The results of one recommendation, for the file and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.flags import MEANINGS
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import Plan
from weir.pipeline.recommend.use import Span
from weir.quotas import QuotaKey


@dataclass(frozen=True, slots=True)
class Found:
    """The results of one recommendation."""

    plan: Plan
    level: str
    span: Span
    version: int | None
    """Version of the roll-up's table that was read."""
    table: pl.DataFrame
    """Proposals: the columns of `tables.RECOMMENDATION` and of `proposals.marked`."""
    outside: pl.DataFrame
    """Needs (`need.NEED`) of entities without an entry, and the reason `why`."""
    left_out: Mapping[str, int]
    """Number of entities that get no entry, by the reason for that. The default entry may still apply to
    them.
    """
    entities: int
    cuts: Mapping[QuotaKey, float]
    """Factor (0 to 1) for the part of the proposals above the floor, by quota with a capacity."""
    loads: pl.DataFrame
    """Load of the cluster: `capacity.loads`."""
    kept: Kept

    @property
    def entries(self) -> int:
        """Number of entities with an entry of their own."""
        return self.table.filter(~pl.col("in_default")).select(POT).unique().height

    @property
    def covered(self) -> int:
        """Number of entities that have a proposal but no entry of their own, because the default entry covers
        them.
        """
        return self.table.select(POT).unique().height - self.entries

    @property
    def flags(self) -> dict[str, int]:
        """Number of proposals by flag."""
        counts = dict(self.table["flags"].explode().drop_nulls().value_counts().iter_rows())
        return {flag: counts[flag] for flag in MEANINGS if flag in counts}
