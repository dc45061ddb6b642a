"""The results of one recommendation, and remarks on them for the operator, the most important first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.flags import HELD_BACK, MEANINGS
from weir.pipeline.recommend.groups import GroupProposal
from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.outlook import filling
from weir.pipeline.recommend.plan import ANONYMOUS, AUTO, STEP, RecommendationPlan, moment
from weir.pipeline.recommend.proposals import WITHOUT
from weir.pipeline.recommend.reasons import readable
from weir.pipeline.recommend.use import CoveredTime
from weir.quotas import QuotaKey
from weir.quotas.table.quota_kind import KINDS

_REMEDY: Final = (
    "no entry limits clients without a client-id; set empty_client_id = default, or choose --level "
    "user-client-id, which proposes an entry for the user"
)


class Found(NamedTuple):
    """The results of one recommendation."""

    plan: RecommendationPlan
    level: str
    span: CoveredTime
    version: int | None
    """Version of the roll-up's table that was read."""
    table: pl.DataFrame
    """Proposals: the columns of `tables.RECOMMENDATION` and of `proposals.proposed`."""
    outside: pl.DataFrame
    """Rows of `proposals.wanted` for entities without an entry."""
    entities: int
    loads: pl.DataFrame
    """Load of the cluster under the proposals, as from `capacity.fitted`."""
    kept: Kept
    groups: list[GroupProposal]

    @property
    def entries(self) -> int:
        """Number of entities with an entry of their own."""
        return self.table.filter(~pl.col("in_default")).select(POT).unique().height

    @property
    def flags(self) -> dict[str, int]:
        """Number of proposals by flag."""
        counts = dict(self.table["flags"].explode().drop_nulls().value_counts().iter_rows())
        return {flag: counts[flag] for flag in MEANINGS if flag in counts}


def counted(count: int, one: str, many: str) -> str:
    """Return a count as text, with the words for one or for many.

    >>> counted(1, "entity", "entities")
    '1 entity'
    """
    return f"{count} {one if count == 1 else many}"


def notes(found: Found) -> Iterator[str]:
    """Yield remarks for the operator. Entities that no entry limits come first, because a busy one makes all
    other quotas useless.
    """
    for quota in found.plan.quotas:
        yield from _unlimited(found, quota)
    for quota in found.plan.quotas:
        yield from _anonymous(found, quota)
    if held := found.flags.get(HELD_BACK):
        one = "value is of an entity that a quota held back: it needs at least what it used"
        many = "values are of entities that a quota held back: they need at least what they used"
        yield (
            f"{counted(held, one, many)}, and nobody knows how much more; each proposal is a step of "
            f"x {STEP:g}: recommend again in a week, or set quota_mode = shadow for a week and record what "
            "they use then"
        )
    yield from _full(found)
    yield from _capacity(found)
    left_out = found.outside.group_by("why").agg(pl.struct(POT).n_unique()).sort("why").rows()
    for why, count in left_out:
        they = "it" if count == 1 else "they"
        yield f"{counted(count, 'entity', 'entities')} {why}: {they} cannot have an entry"
    if found.plan.with_default and any(why != WITHOUT for why, _ in left_out):
        yield "the default entry limits these to the floor, except those without a name"
    yield from of_run(found.plan, found.level, found.kept)


def _unlimited(found: Found, quota: QuotaKey) -> Iterator[str]:
    """Yield a line with the busiest entity that no entry is for, if it used more than the floor: with the
    effect of the new file on it, and the remedy.
    """
    is_quota = pl.col("quota") == quota.value
    busy = found.outside.filter(is_quota & (pl.col("used") > found.plan.floor(quota))).sort("used")
    for row in busy.tail(1).iter_rows(named=True):
        why, used = row["why"], row["used"]
        others = found.table.filter(is_quota)["used"].to_list()
        rank = ", the most of all" if used >= max(others, default=0.0) else ""
        remedy = "no entry limits them"
        if why == WITHOUT and found.level == "client-id":
            remedy = _REMEDY
        elif found.plan.with_default and why != WITHOUT and not row["of_user"]:
            remedy = "the default entry limits them, however much they need"
        yield f"{quota.value}: clients {why} used {readable(quota, used)}{rank}: {remedy}"


def _anonymous(found: Found, quota: QuotaKey) -> Iterator[str]:
    """Yield a line if a user's clients without a client-id, or unauthenticated clients, used most."""
    rows = found.table.filter((pl.col("quota") == quota.value) & (pl.col("used") > 0))
    for row in rows.sort("used", descending=True).head(1).iter_rows(named=True):
        used = f"{quota.value}: {readable(quota, row['used'])}"
        if row["of_user"]:
            yield (
                f"{used}, the most of all, were used by clients of user {_shown(row['user'])} without a "
                "client-id: no entry for client-ids limits them, so an entry for the user is proposed"
            )
        elif row["user"] == ANONYMOUS and found.level != "client-id":
            yield (
                f"{used}, the most of all, were used without authentication, as {ANONYMOUS}: any client "
                "can do so under any client-id; let clients log in"
            )


def _shown(name: str) -> str:
    """Return a name without control characters, because clients choose names freely."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in name)


def _full(found: Found) -> Iterator[str]:
    for each in filling(found.loads, {key.value: value for key, value in found.plan.capacity.items()}):
        quota = QuotaKey(each.quota)
        where = "the cluster" if KINDS[quota].is_of_controller else f"broker {each.broker}"
        weeks = f"in {counted(round(each.weeks), 'week', 'weeks')}"
        when = weeks if each.weeks >= 1 else "within a week" if each.weeks else "now"
        yield (
            f"{quota.value}: {where} is full {when}: its busiest hours average {readable(quota, each.now)}, "
            f"and grow by {readable(quota, each.per_week)} per week"
        )


def _capacity(found: Found) -> Iterator[str]:
    for quota, bound in found.plan.capacity.items():
        is_quota = pl.col("quota") == quota.value
        cut = found.table.filter(is_quota & (pl.col("proposed") < pl.col("wanted")))
        if cut.height:
            brokers = ", ".join(f"{broker}" for broker in cut["full_broker"].unique().sort())
            yield (
                f"{quota.value}: {counted(cut.height, 'value is', 'values are')} lowered to fit the capacity "
                f"in full hours, the largest first (broker {brokers})"
            )
        rows = found.loads.filter(is_quota)
        over = rows.filter(pl.col("load") > pl.col("room") * (1 + 1e-6)).sort("load")
        for most in over.tail(1).iter_rows(named=True):
            yield (
                f"{quota.value}: {counted(over.height, 'hour', 'hours')} cannot fit the capacity: "
                f"at broker {most['broker']}, {moment(most['start_ms'])}, entities need "
                f"{readable(quota, most['load'])} at least: move load to other brokers, or add brokers"
            )
        for peak in rows.sort("mean").tail(1).iter_rows(named=True):
            yield (
                f"{quota.value}: the busiest broker and hour is broker {peak['broker']}, "
                f"{moment(peak['start_ms'])}: {readable(quota, peak['mean'])} on average of "
                f"{readable(quota, bound)}"
            )


def of_run(plan: RecommendationPlan, level: str, kept: Kept) -> Iterator[str]:
    """Yield remarks about the chosen kind of entity (level), and about the values of the current file that
    the new file keeps or drops.
    """
    if plan.level == AUTO:
        why = "every user is ANONYMOUS" if level == "client-id" else "there are users with names"
        yield f"entries are by {level}: {why} (choose with --level)"
    stay = sum(map(len, kept.rates.values())) + sum(len(entry.rates) for entry in kept.shadow)
    stay += sum(len(entry.values) for entry in kept.replication)
    if stay:
        yield f"{counted(stay, 'value is', 'values are')} kept from {plan.current_name}"
    if kept.dropped:
        yield (
            f"{counted(kept.dropped, 'value', 'values')} of {plan.current_name} "
            f"{'is' if kept.dropped == 1 else 'are'} dropped: defaults, or of another level than {level}; "
            "the new entries replace them"
        )
