"""Recommend quotas for each entity from the hours of the roll-up.

Spark aggregates the hours (`use`): the need of each entity (`need`), and the load of each broker under the
proposals (`capacity`). The rest are some rows per entity, on the driver: a limit for each (`proposals`), with
flags where an operator should look (`flags`), a reason (`reasons`) and a tier (`tiers`). They are written to
a table, and line by line to the quota file (`file`). `neighbours` finds in usage records clients that
were busy while others waited longer than usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from weir.pipeline import tables
from weir.pipeline.arrow import in_spark
from weir.pipeline.lake import Lake, empty, latest, replace, sql_text
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend import capacity, notes, proposals, use
from weir.pipeline.recommend.current import Kept, budgets, kept, resolved
from weir.pipeline.recommend.file import lines
from weir.pipeline.recommend.groups import proposed_groups
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.neighbours import neighbours
from weir.pipeline.recommend.notes import Found
from weir.pipeline.recommend.plan import QUOTAS, RecommendationPlan, entity_of
from weir.pipeline.recommend.reasons import Row, reason
from weir.pipeline.recommend.summary import header, listings
from weir.pipeline.recommend.tiers import tiers
from weir.pipeline.rollup import reading
from weir.quotas import QuotaFileError, QuotaKey

Write = Callable[[Iterable[str]], None]
"""Function that writes the lines of a file; called once."""


def recommend(spark: SparkSession, lake: Lake, plan: RecommendationPlan, write: Write) -> Outcome:
    """Write the table of proposals, and call `write` with the lines of the quota file. Raises PipelineError
    for invalid parameters, if the floors exceed the capacity, or if a name cannot be written.

    If there is no usage, remove the cluster's proposals and write no file: usually the path is wrong, and the
    file would have only floors.
    """
    plan.check()
    version = latest(spark, lake.rollup)
    rows = reading.rows(spark, lake, cluster=plan.cluster, days=plan.days, version=version)
    level, span = use.looked_at(rows, plan)
    if not span.rows:
        return _nothing(spark, lake, plan)
    found = _found(use.of_level(rows, level), plan, level, span, version)
    saved = found.table.select(tables.RECOMMENDATION.names)
    _save(in_spark(saved, spark, tables.RECOMMENDATION), lake, plan)
    try:
        write(lines(header(found), _entries(found.table), plan, level, found.kept, found.groups))
    except QuotaFileError as error:
        raise PipelineError(f"{plan.output}: cannot write it: {error}") from None
    return Outcome(
        "recommend",
        read={"hours": span.rows, "entities": found.entities},
        wrote={"entries": found.entries, "proposals": found.table.height},
        where={"hours": lake.rollup, "entries": plan.output, "proposals": lake.recommendation},
        notes=tuple(notes.notes(found)),
        listings=(*listings(found), *neighbours(spark, lake, plan.cluster)),
    )


def _nothing(spark: SparkSession, lake: Lake, plan: RecommendationPlan) -> Outcome:
    _save(empty(spark, tables.RECOMMENDATION), lake, plan)
    days = f" from {plan.days[0]} to {plan.days[1]}" if plan.days else ""
    return Outcome(
        "recommend",
        read={"hours": 0},
        wrote={"entries": 0, "proposals": 0},
        where={"hours": lake.rollup, "proposals": lake.recommendation},
        notes=(f"no usage of cluster {plan.cluster}{days}: {plan.output} is not written; was rollup run?",),
    )


def _found(
    rows: DataFrame, plan: RecommendationPlan, level: str, span: use.CoveredTime, version: int | None
) -> Found:
    limits = resolved(use.entities(rows), plan, level)
    shared = limits.filter(pl.col("client_id_prefix").is_not_null())
    members = shared.select(*tables.CLIENT, "quota", prefix="client_id_prefix")
    hours = use.hours(rows, plan, members)
    every = proposals.wanted(budgets(limits), use.needed(hours, plan, span), plan, level)
    given = every.filter(pl.col("why").is_null())
    outside = every.filter(pl.col("why").is_not_null())
    seen = {(entity_of(*pot), QuotaKey(quota)) for *pot, quota in given.select(*POT, "quota").iter_rows()}
    rest = Kept() if plan.current is None else kept(plan.current, plan, level, seen)
    limits_within, loads = capacity.fitted(hours, _limits(every, plan), plan, rest.sums)
    lowered = limits_within.select(*POT, "quota", "limit", "full_broker", "full_ms")
    given = given.join(lowered, on=[*POT, "quota"], nulls_equal=True)
    table = proposals.proposed(given, plan, span.first_ms, span.end_ms)
    table = table.with_columns(
        cluster=pl.lit(plan.cluster),
        reason=pl.Series([reason(row, plan) for row in table.iter_rows(named=True)], dtype=pl.String),
        tier=pl.coalesce(pl.lit(None, pl.Float64), *map(_tier, table.partition_by("quota"))),
        rollup_version=pl.lit(version, pl.Int64),
    )
    entities = limits.select(tables.CLIENT).unique().height
    groups = proposed_groups(rows, limits, plan, span, level)
    return Found(plan, level, span, version, table, outside, entities, loads, rest, groups)


def _tier(rows: pl.DataFrame) -> pl.Expr:
    """Return the column with the least of the tiers of a quota that is enough; null for other quotas. `rows`
    has the proposals for this quota.
    """
    is_quota = pl.col("quota") == rows["quota"][0]
    every = tiers(rows["wanted"])
    return pl.coalesce(pl.when(is_quota & (pl.col("wanted") <= tier)).then(tier) for tier in every)


def _limits(every: pl.DataFrame, plan: RecommendationPlan) -> pl.DataFrame:
    """Return the limits for `capacity.fitted`: proposals, and the floor for entities without a proposal that
    the default entry covers.
    """
    is_given = pl.col("why").is_null()
    in_default = pl.lit(plan.with_default) & (pl.col("why") != proposals.WITHOUT) & ~pl.col("of_user")
    limit, robust = (pl.when(is_given).then(name).otherwise("low") for name in ("wanted", "robust"))
    return every.filter(is_given | in_default).with_columns(limit=limit, robust=robust)


def _save(rows: DataFrame, lake: Lake, plan: RecommendationPlan) -> None:
    replace(rows, lake.recommendation, f"cluster = {sql_text(plan.cluster)}")


def _entries(table: pl.DataFrame) -> Iterator[Row]:
    """Yield the proposals that get an entry, ordered by entity."""
    order = pl.col("quota").replace_strict({key.value: index for index, key in enumerate(QUOTAS)})
    return table.filter(~pl.col("in_default")).sort(*POT, order).iter_rows(named=True)
