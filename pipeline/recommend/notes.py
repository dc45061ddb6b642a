"""Remarks for the operator about a recommendation, the most important first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from weir.pipeline.recommend.current import Kept
from weir.pipeline.recommend.flags import HELD_BACK
from weir.pipeline.recommend.found import Found
from weir.pipeline.recommend.outlook import filling
from weir.pipeline.recommend.plan import ANONYMOUS, AUTO, STEP, Plan, moment
from weir.pipeline.recommend.proposals import WITHOUT
from weir.pipeline.recommend.reasons import readable
from weir.quotas import QuotaKey

_REMEDY: Final = (
    "no entry limits clients without a client-id; set empty_client_id = default, or choose --level "
    "user-client-id, which proposes an entry for the user"
)
_TOGETHER: Final = "the default entry limits them, however much they need"


def notes(found: Found) -> Iterator[str]:
    """Yield remarks for the operator. Entities that no entry limits come first, because a busy one makes all
    other quotas useless.
    """
    yield from _unlimited(found)
    yield from _anonymous(found)
    held = found.flags.get(HELD_BACK)
    if held:
        yield (
            f"{held} values are of entities that a quota held back: they need at least what they used, and "
            f"nobody knows how much more; each proposal is a step of x {STEP:g}: recommend again in a week, "
            "or set quota_mode = shadow for a week and record what they use then"
        )
    yield from _full(found)
    yield from _cuts(found)
    for why, count in found.left_out.items():
        yield f"{count} entities {why}: they cannot have an entry"
    if found.plan.with_default and any(why != WITHOUT for why in found.left_out):
        yield "the default entry limits these to the floor, except those without a name"
    yield from of_run(found.plan, found.level, found.kept)


def _unlimited(found: Found) -> Iterator[str]:
    """Yield a line for each quota with the busiest entity that no entry is for, if it used more than the
    floor.
    """
    for quota in found.plan.quotas:
        is_busy = (pl.col("quota") == quota.value) & (pl.col("used") > found.plan.floor(quota))
        for row in found.outside.filter(is_busy).sort("used").tail(1).iter_rows(named=True):
            why, used = row["why"], row["used"]
            yield (
                f"{quota.value}: clients {why} used {readable(quota, used)}{_rank(found, quota, used)}: "
                f"{_remedy(found, why, of_user=row['of_user'])}"
            )


def _remedy(found: Found, why: str, *, of_user: bool) -> str:
    """Return the effect of the new file on an entity without an entry, and the remedy."""
    if why == WITHOUT and found.level == "client-id":
        return _REMEDY
    is_covered = found.plan.with_default and why != WITHOUT and not of_user
    return _TOGETHER if is_covered else "no entry limits them"


def _anonymous(found: Found) -> Iterator[str]:
    """Yield a line for each quota that a user's clients without a client-id, or unauthenticated clients, used
    most.
    """
    for quota in found.plan.quotas:
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


def _rank(found: Found, quota: QuotaKey, used: float) -> str:
    others = found.table.filter(pl.col("quota") == quota.value)["used"]
    return ", the most of all" if used >= max(others.to_list(), default=0.0) else ""


def _full(found: Found) -> Iterator[str]:
    capacity = {key.value: value for key, value in found.plan.capacity.items()}
    for each in filling(found.loads, capacity):
        quota = QuotaKey(each.quota)
        where = "the cluster" if quota is QuotaKey.CONTROLLER_MUTATION_RATE else f"broker {each.broker}"
        when = f"in {each.weeks:.0f} weeks" if each.weeks >= 1 else "within a week" if each.weeks else "now"
        yield (
            f"{quota.value}: {where} is full {when}: its busiest hours average {readable(quota, each.now)}, "
            f"and grow by {readable(quota, each.per_week)} per week"
        )


def _cuts(found: Found) -> Iterator[str]:
    for quota, factor in found.cuts.items():
        if factor < 1:
            yield (
                f"{quota.value}: cut to {factor:.1%} of what is above the floor, to fit the capacity "
                "and over-commitment"
            )
    for quota in found.cuts:
        rows = found.loads.filter(pl.col("quota") == quota.value).sort("mean")
        if rows.height:
            peak = rows.row(-1, named=True)
            yield (
                f"{quota.value}: the busiest broker and hour is broker {peak['broker']}, "
                f"{moment(peak['start_ms'])}: {readable(quota, peak['mean'])} on average of "
                f"{readable(quota, found.plan.capacity[quota])}"
            )


def of_run(plan: Plan, level: str, kept: Kept) -> Iterator[str]:
    """Yield remarks about the chosen kind of entity (level), and about the values of the current file that
    the new file keeps or drops.
    """
    if plan.level == AUTO:
        why = "every user is ANONYMOUS" if level == "client-id" else "there are users with names"
        yield f"entries are by {level}: {why} (choose with --level)"
    stay = sum(map(len, kept.rates.values())) + sum(len(entry.rates) for entry in kept.shadow)
    stay += sum(len(entry.values) for entry in kept.replication)
    if stay:
        yield f"{stay} values are kept from {plan.current_name}"
    if kept.dropped:
        yield (
            f"{kept.dropped} values of {plan.current_name} are dropped: defaults, or of another level "
            f"than {level}; the new entries replace them"
        )
