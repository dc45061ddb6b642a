"""Recommend quotas for each entity from the hours of the roll-up.

Spark aggregates the hours (`use`): the need of each entity (`need`), and the load of each broker under the
proposals (`capacity`). The rest are some rows per entity, on the driver: a limit for each (`proposals`), with
flags where an operator should look (`flags`), a reason (`reasons`) and a tier (`tiers`). They are written to
a table, and line by line to the quota file (`file`). `neighbours` finds in usage records clients that
were busy while others waited longer than usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from weir.pipeline import tables
from weir.pipeline.arrow import in_spark
from weir.pipeline.lake import Lake, empty, latest, replace, sql_text
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend import capacity, notes, proposals, use
from weir.pipeline.recommend.current import Kept, budgets, candidates, kept, resolved
from weir.pipeline.recommend.file import Proposed, lines
from weir.pipeline.recommend.found import Found
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.neighbours import neighbours
from weir.pipeline.recommend.plan import QUOTAS, Plan
from weir.pipeline.recommend.reasons import Ground, reason
from weir.pipeline.recommend.summary import header, listings
from weir.pipeline.recommend.tiers import tier_of, tiers
from weir.quotas import Entity, Prefix, QuotaFileError, QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[[Iterable[str]], None]
"""Function that writes the lines of a file; called once."""

ONE_OFF: str = "active in too few hours"


def recommend(spark: SparkSession, lake: Lake, plan: Plan, write: Write) -> Outcome:
    """Write the table of proposals, and call `write` with the lines of the quota file. Raises PipelineError
    for invalid parameters, if the floors exceed the capacity, or if a name cannot be written.

    If there is no usage, remove the cluster's proposals and write no file: usually the path is wrong, and the
    file would have only floors.
    """
    plan.check()
    version = latest(spark, lake.rollup)
    rows = use.rows(spark, lake, plan, version)
    level, span = use.looked_at(rows, plan)
    if not span.rows:
        return _nothing(spark, lake, plan)
    found = _found(use.of_level(rows, level), plan, level, span, version)
    saved = found.table.select(tables.RECOMMENDATION.names)
    _save(in_spark(saved, spark, tables.RECOMMENDATION), lake, plan)
    try:
        write(lines(header(found), _entries(found.table), plan, level, found.kept))
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


def _nothing(spark: SparkSession, lake: Lake, plan: Plan) -> Outcome:
    _save(empty(spark, tables.RECOMMENDATION), lake, plan)
    days = f" from {plan.days[0]} to {plan.days[1]}" if plan.days else ""
    return Outcome(
        "recommend",
        read={"hours": 0},
        wrote={"entries": 0, "proposals": 0},
        where={"hours": lake.rollup, "proposals": lake.recommendation},
        notes=(f"no usage of cluster {plan.cluster}{days}: {plan.output} is not written; was rollup run?",),
    )


def _found(rows: DataFrame, plan: Plan, level: str, span: use.Span, version: int | None) -> Found:
    limits = resolved(use.entities(rows), plan, level)
    shared = limits.filter(pl.col("client_id_prefix").is_not_null())
    members = shared.select(*use.NAMES, "quota", prefix="client_id_prefix")
    hours = use.hours(rows, plan, level, members)
    every = proposals.wanted(budgets(limits, level), use.needed(hours, plan, span), plan)
    every = _with_reasons_to_leave_out(every, plan, level)
    given = every.filter(pl.col("why").is_null())
    rest = _kept(given, plan, level)
    cuts, loads = capacity.factors(hours, _limits(every, plan), plan, rest.sums)
    marked = proposals.marked(proposals.proposed(given, plan, cuts), plan, level, span.first_ms, span.end_ms)
    table = _tiered(marked)
    reasons = [reason(Ground(*row), plan, cuts) for row in table.select(Ground._fields).iter_rows()]
    table = table.with_columns(
        cluster=pl.lit(plan.cluster),
        reason=pl.Series(reasons, dtype=pl.String),
        rollup_version=pl.lit(version, pl.Int64),
    )
    outside = every.filter(pl.col("why").is_not_null())
    left = outside.group_by("why").agg(pl.struct(POT).n_unique()).sort("why")
    entities = limits.select(use.NAMES).unique().height
    return Found(
        plan, level, span, version, table, outside, dict(left.iter_rows()), entities, cuts, loads, rest
    )


def _with_reasons_to_leave_out(every: pl.DataFrame, plan: Plan, level: str) -> pl.DataFrame:
    """Return the rows with `why`: the reason why the entity gets no entry, null if it gets one or if the
    default entry covers it; and with `of_user` (`proposals.of_user`).
    """
    names = every.select("user", "client_id").iter_rows()
    why = pl.Series("why", [proposals.left_out(*each) for each in names], dtype=pl.String)
    rows = every.with_columns(why, of_user=proposals.of_user(level))
    small = pl.col("of_user") & (pl.col("wanted") <= pl.col("low")).all().over(POT)
    few = pl.col("is_one_off") & (pl.lit(not plan.with_default) | pl.col("of_user"))
    return rows.with_columns(
        why=pl.coalesce(
            "why", pl.when(small).then(pl.lit(proposals.WITHOUT)), pl.when(few).then(pl.lit(ONE_OFF))
        )
    )


def _limits(every: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """Return the rows of `capacity.loads`: proposals, and the floor for entities without a proposal that the
    default entry covers.
    """
    is_given = pl.col("why").is_null()
    in_default = pl.lit(plan.with_default) & (pl.col("why") != proposals.WITHOUT) & ~pl.col("of_user")
    wanted = pl.when(is_given).then("wanted").otherwise("low")
    return every.filter(is_given | in_default).with_columns(wanted=wanted)


def _kept(given: pl.DataFrame, plan: Plan, level: str) -> Kept:
    """Return the values of the current quota file that the new file keeps: those of entities or quotas
    without a proposal. `given` has one row for each entity and quota with a proposal.
    """
    if plan.current is None:
        return Kept()
    present = set(given.select(*POT, "quota").iter_rows())
    seen = {each for each in candidates(plan.current, plan, level) if _row(*each) in present}
    return kept(plan.current, plan, level, seen)


def _row(entity: Entity, key: QuotaKey) -> tuple[str | None, str | None, str | None, str]:
    user, client_id = entity.user, entity.client_id
    return (
        user if isinstance(user, str) else None,
        client_id if isinstance(client_id, str) else None,
        client_id.start if isinstance(client_id, Prefix) else None,
        key.value,
    )


def _tiered(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with `tier`: the least of the tiers of their quota that is enough."""
    by_quota = rows.partition_by("quota", as_dict=True)
    of = {quota: tiers(part["wanted"].to_list()) for (quota,), part in by_quota.items()}
    found = [tier_of(wanted, of[quota]) for quota, wanted in rows.select("quota", "wanted").iter_rows()]
    return rows.with_columns(tier=pl.Series(found, dtype=pl.Float64))


def _save(rows: DataFrame, lake: Lake, plan: Plan) -> None:
    replace(rows, lake.recommendation, f"cluster = {sql_text(plan.cluster)}")


def _entries(table: pl.DataFrame) -> Iterator[Proposed]:
    """Yield the proposals that get an entry, ordered by entity."""
    order = pl.col("quota").replace_strict({key.value: index for index, key in enumerate(QUOTAS)})
    rows = table.filter(~pl.col("in_default")).sort(*POT, order)
    for row in rows.select(Proposed._fields).iter_rows():
        yield Proposed(*row)
