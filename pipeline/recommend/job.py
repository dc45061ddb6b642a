"""Recommend quotas for each entity from the hours of the roll-up.

The need is a percentile of the usage, times growth and headroom, and at least the floor (`need`). Proposals
are cut if they exceed the brokers' capacity (`capacity`), and flagged if an operator should check them
(`flags`). Each value has a reason (`reasons`). The proposals are written to a table, and from the table to
the quota file, line by line (`file`), so that memory never has all proposals or the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from weir.pipeline import tables
from weir.pipeline.files import Files
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome, PipelineError
from weir.pipeline.recommend.capacity import factors, floor, proposed, wanted
from weir.pipeline.recommend.current import Kept, candidates, kept, resolved
from weir.pipeline.recommend.file import Proposed, lines
from weir.pipeline.recommend.flags import flags
from weir.pipeline.recommend.names import left_out
from weir.pipeline.recommend.need import (
    ENTITY,
    NAMES,
    Span,
    by_quota,
    hours,
    looked_at,
    needs,
    shared,
    unresolved,
)
from weir.pipeline.recommend.plan import QUOTAS, Plan
from weir.pipeline.recommend.reasons import reason
from weir.pipeline.recommend.summary import counted, header, listings, notes, notes_of_run
from weir.quotas import Entity, Prefix, QuotaFileError, QuotaKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write = Callable[[Iterable[str]], None]
"""Function that writes the lines of a file; called once."""

ONE_OFF: str = "active in too few hours"
_KEY = (*ENTITY, "quota")


def recommend(spark: SparkSession, lake: Lake, plan: Plan, write: Write) -> Outcome:
    """Write the table of proposals, and call `write` with the lines of the quota file. Raises PipelineError
    for invalid parameters, if another recommendation runs on this lake, if the floors exceed the capacity, or
    if a name cannot be written.

    If there is no usage, empty the table and write no file: usually the path is wrong, and the file would
    have only floors.
    """
    plan.check()
    with Files(spark).locked(lake.lock("recommend"), "recommend"):
        return _recommend(spark, lake, plan, write)


def _recommend(spark: SparkSession, lake: Lake, plan: Plan, write: Write) -> Outcome:
    rows = hours(spark, lake, plan)
    level, span = looked_at(rows, plan)
    if not span.hours:
        return _nothing(spark, lake, plan)
    rows = rows.where(sql.col("level") == level)
    needed = _needs(spark, rows.where(left_out(level).isNull()), plan, level)
    needed = needed.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        entities, missing = _people(rows, needed, plan, level)
        given = needed if plan.with_default else needed.where(~sql.col("is_one_off"))
        rest = _kept(given, spark, plan, level)
        cuts = factors(given, plan, rest.sums)
        _save(_proposals(given, plan, span, cuts), lake)
    finally:
        needed.unpersist()
    table = tables.read(spark, lake.recommendation, tables.RECOMMENDATION)
    counts = counted(table, missing, entities)
    about = [*header(plan, level, span, counts, cuts), *notes_of_run(plan, level, rest)]
    try:
        write(lines(about, _entries(table), plan, level, rest))
    except QuotaFileError as error:
        raise PipelineError(f"{plan.output}: cannot write it: {error}") from None
    return Outcome(
        "recommend",
        read={"hours": span.hours, "entities": entities},
        wrote={"entries": counts.entries, "proposals": counts.proposals},
        where={"hours": lake.rollup("hour"), "entries": plan.output, "proposals": lake.recommendation},
        notes=(*notes(plan, counts, cuts), *notes_of_run(plan, level, rest)),
        listings=tuple(listings(table, plan, counts)),
    )


def _nothing(spark: SparkSession, lake: Lake, plan: Plan) -> Outcome:
    _save(spark.createDataFrame([], tables.RECOMMENDATION), lake)
    days = f" from {plan.days[0]} to {plan.days[1]}" if plan.days else ""
    return Outcome(
        "recommend",
        read={"hours": 0},
        wrote={"entries": 0, "proposals": 0},
        where={"hours": lake.rollup("hour"), "proposals": lake.recommendation},
        notes=(f"no usage{days}: {plan.output} is not written; was `weir pipeline rollup` run?",),
    )


def _people(rows: DataFrame, needed: DataFrame, plan: Plan, level: str) -> tuple[int, dict[str, int]]:
    """Return the number of entities with usage, and the number of entities that get no entry, by reason."""
    each = rows.select(*NAMES).distinct().groupBy(left_out(level).alias("why")).agg(sql.count(sql.lit(1)))
    by_reason = {row[0]: row[1] for row in each.collect()}  # a row per reason
    missing = {why: count for why, count in by_reason.items() if why is not None}
    if not plan.with_default and plan.min_active_hours > 1:
        few = needed.where(sql.col("is_one_off")).select(*NAMES).distinct().count()
        missing.update({ONE_OFF: few} if few else {})
    return sum(by_reason.values()), dict(sorted(missing.items()))


def _needs(spark: SparkSession, rows: DataFrame, plan: Plan, level: str) -> DataFrame:
    """Return one row per entity and quota with its usage (columns of `need.needs`), and with `wanted`, the
    limit in the quota's unit that growth, headroom and floor make of the usage.
    """
    used = by_quota(rows, plan)
    if plan.current is None:
        used = unresolved(used)
    else:
        used = shared(resolved(used, spark, plan.current, plan, level), level)
    return needs(used, plan).withColumn("wanted", wanted(plan))


def _kept(given: DataFrame, spark: SparkSession, plan: Plan, level: str) -> Kept:
    """Return the values of the current quota file that the new file keeps. `given` has one row for each
    entity and quota with a proposal.
    """
    if plan.current is None:
        return Kept()
    seen: set[tuple[Entity, QuotaKey]] = set()
    named = candidates(plan.current, plan, level)
    if named:
        columns = StructType([tables.RECOMMENDATION[name] for name in _KEY])
        asked = sql.broadcast(spark.createDataFrame([_row(*quota) for quota in named], columns))
        same = [given[name].eqNullSafe(asked[name]) for name in _KEY]
        # At most as many rows as the file has entries.
        for row in given.join(asked, same, "left_semi").select(*_KEY).collect():
            seen.add((_entity(*row[:3]), QuotaKey(row[3])))
    return kept(plan.current, plan, level, seen)


def _row(entity: Entity, key: QuotaKey) -> tuple[str | None, str | None, str | None, str]:
    user, client_id = entity.user, entity.client_id
    return (
        user if isinstance(user, str) else None,
        client_id if isinstance(client_id, str) else None,
        client_id.start if isinstance(client_id, Prefix) else None,
        key.value,
    )


def _entity(user: str | None, client_id: str | None, prefix: str | None) -> Entity:
    return Entity(user, client_id if prefix is None else Prefix(prefix))


def _proposals(given: DataFrame, plan: Plan, span: Span, cuts: Mapping[QuotaKey, float]) -> DataFrame:
    """Return the proposals in the columns of `tables.RECOMMENDATION`."""
    may_default = sql.lit(plan.with_default) & sql.col("client_id_prefix").isNull()
    rows = given.withColumn("proposed", proposed(plan, cuts))
    return rows.withColumns(
        {
            "in_default": may_default & (sql.col("proposed") <= floor(plan)),
            "flags": flags(plan, span.first_ms, span.end_ms),
            "reason": reason(plan, cuts),
        }
    ).select(*tables.RECOMMENDATION.names)


def _save(proposals: DataFrame, lake: Lake) -> None:
    proposals.write.mode("overwrite").parquet(lake.recommendation)


def _entries(table: DataFrame) -> Iterator[Proposed]:
    """Yield the proposals that get an entry, ordered by entity; memory holds one partition of the table at a
    time.
    """
    order = sql.array_position(sql.array(*(sql.lit(quota.value) for quota in QUOTAS)), sql.col("quota"))
    rows = table.where(~sql.col("in_default")).orderBy(*ENTITY, order)
    for row in rows.select(*Proposed._fields).toLocalIterator():
        yield Proposed(*row)
