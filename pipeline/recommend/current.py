"""The current quotas: the limit of each entity, and the entries to keep in the new file.

The package `quotas` looks up the limits, because its code defines the precedence of entries, defaults and
prefixes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import polars as pl

from weir.pipeline.recommend.need import POT
from weir.pipeline.recommend.plan import ANONYMOUS, AUTO, PAIRS, RecommendationPlan, everybody, is_of_level
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.table.group_entry import GroupEntry, group_entries
from weir.quotas.table.options import Options
from weir.quotas.table.quota_entry import Entry, most
from weir.quotas.table.quota_file import entries_of
from weir.quotas.table.replication_entry import ReplicationEntry, replication_entries

RESOLVED: Final[dict[str, type[pl.DataType]]] = {
    **dict.fromkeys(("user", "client_id", "quota"), pl.String),
    "current": pl.Float64,
    **dict.fromkeys(("alone", "named"), pl.Boolean),
    "client_id_prefix": pl.String,
}


class CurrentLimit(NamedTuple):
    """The limit of one quota that the current quota file gives to an entity."""

    current: float | None
    """None also for the value `unlimited`."""
    alone: bool = False
    """True if no other entity shares the budget of the limit."""
    named: bool = False
    """True if neither the user nor the client-id of the entry that sets the limit is the default. In
    `resolved`, true if this holds for any recommended quota.
    """
    prefix: str | None = None
    """Prefix whose client-ids share the budget; None if the limit has no prefix."""


def current_limit(
    table: QuotaTable, key: QuotaKey, level: str, user: str | None, client_id: str | None
) -> CurrentLimit:
    """Return the current limit of an entity in `table`. `user` or `client_id` is None if entities are only
    client-ids, or only users.
    """
    limits = table.limits(key)
    names = user or "", client_id or ""
    limit = limits.resolve(*names)
    if limit is None:
        return CurrentLimit(None)
    tags, named = limit.tags, limits.named(*names)
    per_user, per_client_id = "user" in level, "client-id" in level
    return CurrentLimit(
        None if limit.value >= most(key) else limit.value,
        (tags.user != "" or not per_user)
        and (tags.client_id != "" or tags.client_id_prefix != "" or not per_client_id),
        (named.user != "" or not per_user) and (named.client_id != "" or not per_client_id),
        tags.client_id_prefix or None,
    )


def resolved(entities: pl.DataFrame, plan: RecommendationPlan, level: str) -> pl.DataFrame:
    """Return one row per entity and recommended quota with its current limit: the columns of `entities`
    (`user`, `client_id` and others), `quota`, and the fields of `CurrentLimit`, `prefix` as
    `client_id_prefix`. Without a current table, nothing has a limit.
    """
    table = plan.current or QuotaTable()
    stand_in = ANONYMOUS if plan.level == AUTO and level == "client-id" else None
    found: list[tuple[object, ...]] = []
    for user, client_id in entities.select("user", "client_id").iter_rows():
        limits = {key: current_limit(table, key, level, user or stand_in, client_id) for key in plan.quotas}
        named = any(limit.named for limit in limits.values())
        found += [(user, client_id, key.value, *limit._replace(named=named)) for key, limit in limits.items()]
    limits_of_each = pl.DataFrame(found, RESOLVED, orient="row")
    return entities.join(limits_of_each, on=["user", "client_id"], nulls_equal=True)


def budgets(limits: pl.DataFrame) -> pl.DataFrame:
    """Return one row per budget and quota, from one row per entity and quota (`resolved`): `POT`, `quota`,
    `current`, `alone`, `named`, `hours` (number of hours with records) and `first_ms`. Client-ids that share
    a prefix's quota have one row together, for each user if entities have users.
    """
    own = pl.when(pl.col("client_id_prefix").is_null()).then("client_id")
    by_pot = limits.with_columns(client_id=own).group_by(*POT, "quota")
    return by_pot.agg(
        pl.col("current").max(),
        pl.col("alone", "named").all(),
        pl.col("hours").max(),
        pl.col("first_ms").min(),
    )


@dataclass(slots=True)
class Kept:
    """Values of the current quota file that the recommendation takes over into the new file."""

    rates: dict[Entity, dict[QuotaKey, float]] = field(default_factory=dict)
    shadow: list[Entry] = field(default_factory=list)
    sums: dict[QuotaKey, float] = field(default_factory=dict)
    """Sums of the values taken over for entities without usage, by recommended quota; these use up part of
    the capacity.
    """
    dropped: int = 0
    """Number of values in the current file that the new file leaves out, because its recommended entries
    replace them.
    """
    replication: list[ReplicationEntry] = field(default_factory=list)
    """Replication throttles of the current file; the new file keeps them."""
    groups: list[GroupEntry] = field(default_factory=list)
    """Groups of the current file; the new file keeps them, and their quotas."""
    options: dict[Entity, Options] = field(default_factory=dict)
    """Pacing (kind of limiter) and scope (one budget per broker or per cluster) of the present enforced
    entries, by the entity that gets these options in the new file.
    """


def kept(
    table: QuotaTable, plan: RecommendationPlan, level: str, seen: Collection[tuple[Entity, QuotaKey]]
) -> Kept:
    """Return the values of the current quota file that the new file keeps: those of other quotas, and those
    of entities without usage. `seen` has the entities and quotas with usage.
    """
    found = Kept(
        shadow=[entry for entry in entries_of(table) if entry.is_shadow],
        replication=replication_entries(table.replication),
        groups=group_entries(table.groups),
    )
    options = table.options()
    for (entity, key), value in table.values.items():
        home = _home(entity, key, plan, level)
        if home is None or (home != entity and (home, key) in table.values):
            found.dropped += 1  # a new entry, or the entry of `home`, outranks this value
            continue
        if (entity, key) in options:
            found.options.setdefault(home, options[entity, key])
        if (entity, key) not in seen:
            found.rates.setdefault(home, {})[key] = value
            # "unlimited" exempts an entity, which uses nothing here: it reserves no capacity
            if key in plan.quotas and is_of_level(entity, level) and value < most(key):
                found.sums[key] = found.sums.get(key, 0.0) + value
    return found


def _home(entity: Entity, key: QuotaKey, plan: RecommendationPlan, level: str) -> Entity | None:
    """Return the entity in the new file that takes over this value of the current file, usually the entity
    that has the value now; None if the recommendation replaces the value.
    """
    of_clients = entity.user is not None or entity.client_id is not None
    if (
        key not in plan.quotas
        or not of_clients
        or is_of_level(entity, level)
        or (entity == everybody(level) and not plan.with_default)
    ):
        return entity
    if isinstance(entity.client_id, Prefix) and level == PAIRS:
        return Entity(DEFAULT, entity.client_id)  # the default pair would outrank a prefix without a user
    return None
