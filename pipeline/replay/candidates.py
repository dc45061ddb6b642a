"""Read candidate quota files, and find the budget that each client uses under each candidate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from weir.pipeline.outcome import PipelineError
from weir.pipeline.rollup.columns import RATES
from weir.pipeline.tables import CLIENT
from weir.quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, parse
from weir.quotas.replay_rules import ReplayedLimit, ReplayedMember
from weir.quotas.table.bounded_names import shortened
from weir.quotas.table.ends import in_force_at
from weir.quotas.table.groups import QuotaGroups
from weir.quotas.table.limits import Limit
from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_kind import FLOORS, KINDS, STORAGE
from weir.quotas.table.times import now_utc

RECORDED: Final = "recorded"
"""Name that results give to the recorded throttle times, in place of the name of a candidate quota file."""
KEYS: Final = tuple(map(QuotaKey, RATES))
OF: Final = ("of_user", "of_client_id", "of_prefix", "of_group")
"""Columns that identify a budget, "" for a part that the budget does not distinguish."""
_DRAWN: Final = {
    **dict.fromkeys(("candidate", "quota", "user", "client_id", *OF), pl.String),
    "limit": pl.Float64,
    "pacing": pl.String,
    "scope": pl.String,
    "in_force": pl.Float64,
    "chain": pl.UInt32,
}
"""Columns of the budgets that clients use under a candidate quota file. `pacing` and `scope` are those of the
entry, as written in a quota file. `in_force` is the limit of the same budget in the first file. `chain` is an
index of `Drawn.chains`.
"""


class Candidate(NamedTuple):
    """A candidate quota file: its name in results, and its text."""

    name: str
    text: str


def read_candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Read quota files; give each a unique name: its file name, or its path if another file has the same
    name. Raises PipelineError if a file cannot be read or parsed.
    """
    files, names, found = Counter(path.name for path in paths), Counter([RECORDED]), list[Candidate]()
    for path in paths:
        name = path.name if files[path.name] == 1 else str(path)
        name = name.encode("utf-8", "replace").decode()  # Spark and JSON accept only UTF-8
        names[name] += 1
        found.append(Candidate(name if names[name] == 1 else f"{name} #{names[name]}", _text(path)))
    return found


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
        parse(text)
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{path}: not UTF-8") from None
    except QuotaFileError as error:
        raise PipelineError(f"{path}: {error}") from None
    return text


def not_replayed(candidate: Candidate) -> list[str]:
    """Return lines with the number of entries that a replay ignores, one for each type of entry."""
    table = parse(candidate.text)
    topics = sum(entity.topic is not None and key not in STORAGE for entity, key in table.values)
    existing = sum(entity.topic_prefix is not None or key in STORAGE for entity, key in table.values)
    addresses = sum(entity.ip is not None for entity, _key in table.values)
    left_out = {
        "shadow entries (they throttle no client)": len(table.shadow),
        "rates of topics (records have no topics)": topics,
        "limits on what exists (records have no topics)": existing,
        "rates of connections (records have no addresses)": addresses,
    }
    return [f"{candidate.name}: {n} {what} left out" for what, n in left_out.items() if n]


class Drawn(NamedTuple):
    """The budgets that clients use under each candidate quota file, and those of the recorded throttle times.
    A client without a limit has only the latter.
    """

    clients: pl.DataFrame
    """One row per client: `CLIENT`, and its number `client`."""
    draws: pl.DataFrame
    """One row per client, quota, candidate and limit, its own and those of its groups: the number `client`,
    `quota` (an index of `KEYS`), `budget`, `scope` and `home` (a hash of the names) of the budget, and
    `chain`.
    """
    budgets: pl.DataFrame
    """One row per budget: its number `budget`, `candidate`, `quota`, `user`, `client_id` and `group` as in
    `tables.REPLAY`, `limit`, `pacing`, `in_force`, and `ranged`: True if its result is a range, because
    clients were held back under another limit.
    """
    chains: tuple[ReplayedMember, ...] = ()
    """Other limits of the members of groups. `ReplayedLimit.broker` is 0 for a budget of each broker."""


def drawn(
    clients: pl.DataFrame, candidates: Sequence[Candidate], unnamed: str, pacing: Pacing = Pacing.KAFKA
) -> Drawn:
    """Return the budgets that clients use. `clients` has the columns `CLIENT` and `held_back` (True if a
    client was told to wait when it was recorded, by any quota), one row per client.

    A client without client-id is treated as if its client-id were `unnamed`. Byte rates whose entries set no
    pacing (kind of limiter) get `pacing`. The recorded throttle times are grouped by the budgets of the first
    candidate, without groups; a client without one has a budget of its own.
    """
    chains: dict[ReplayedMember, int] = {}
    rows = [
        (*row, chains.setdefault(member, len(chains)) if any(member) else None)
        for user, client_id in clients.select(CLIENT).iter_rows()
        for row, member in _draws(candidates, user, client_id, unnamed, pacing)
    ]
    each = pl.DataFrame(rows, _DRAWN, orient="row").join(clients, on=CLIENT)
    here, is_first = ("quota", *OF, "candidate"), pl.col("candidate") == candidates[0].name
    is_same = (pl.col("in_force").count() == pl.len()).over(here) & (
        is_first.sum().over("quota", *OF) == pl.len().over(here)
    )
    in_force = pl.when(is_same).then("in_force")
    ranged = pl.col("held_back").any().over(here) & ~pl.col("limit").eq_missing(in_force)
    limited = each.with_columns(in_force=in_force, ranged=ranged, has_limit=True)
    quotas = pl.DataFrame({"quota": [key.value for key in KEYS]})
    first = each.filter(is_first & (pl.col("of_group") == "")).select(*CLIENT, "quota", *OF, has_limit=True)
    recorded = clients.join(quotas, how="cross").join(first, on=(*CLIENT, "quota"), how="left")
    recorded = recorded.with_columns(candidate=pl.lit(RECORDED), ranged=False)
    both = pl.concat([limited, recorded], how="diagonal")
    prefix = pl.when(pl.col("of_prefix") != "").then(pl.col("of_prefix") + "*")
    of_user, of_client_id = (pl.when(pl.col(name) != "").then(name) for name in OF[:2])
    own = pl.col("has_limit").is_null()
    both = both.with_columns(
        name=pl.when(own).then("user").otherwise(of_user),
        name_id=pl.when(own).then("client_id").otherwise(pl.coalesce(prefix, of_client_id)),
        group=pl.when(pl.col("of_group") != "").then("of_group"),
    )
    named = ("candidate", "quota", "name", "name_id", "group")
    same = (*named, *OF, "limit", "pacing", "scope", "in_force", "ranged")
    # A hash of polars is computed here on the driver only: another release of polars has another.
    names = (pl.struct(named).hash() // 4).cast(pl.Int64)
    budgets = both.select(same).unique().with_row_index("budget").with_columns(home=names)
    numbers = clients.select(CLIENT).with_row_index("client")
    draws = both.join(budgets, on=same, nulls_equal=True).join(numbers, on=CLIENT)
    indices = {key.value: index for index, key in enumerate(KEYS)}
    quota = pl.col("quota").replace_strict(indices, return_dtype=pl.UInt8)
    renamed = budgets.drop(*OF, "scope", "home").rename({"name": "user", "name_id": "client_id"})
    draws = draws.select("client", quota, "budget", "scope", "home", "chain")
    return Drawn(numbers, draws, renamed, tuple(chains))


def _draws(
    candidates: Sequence[Candidate], user: str, client_id: str, unnamed: str, pacing: Pacing
) -> Iterator[tuple[tuple[object, ...], ReplayedMember]]:
    """Yield the values of `_DRAWN` but `chain`, and the limits below, for each limit of a client."""
    in_force: dict[tuple[QuotaKey, str], tuple[Limit, ReplayedMember]] = {}
    for candidate in candidates:
        table = _table(candidate.text, pacing)
        for key in KEYS:
            for limit, member in _limits(table, key, user, client_id or unnamed):
                place = key, limit.tags.group
                if candidate is candidates[0]:
                    in_force[place] = limit, member
                other, its = in_force.get(place, (None, None))
                names = candidate.name, key.value, user, client_id, *limit.tags[:3], limit.tags.group
                options = limit.pacing.value, limit.scope.value
                is_same = other is not None and (other._replace(value=limit.value), its) == (limit, member)
                value = other.value if other and is_same else None
                yield (*names, limit.value, *options, value), member


def _limits(
    table: QuotaTable, key: QuotaKey, user: str, client_id: str
) -> Iterator[tuple[Limit, ReplayedMember]]:
    """Yield the limits of a client, each with those below it: its own, then those of its groups."""
    limits = table.limits(key)
    own = limits.resolve(user, client_id)
    if own is not None:
        yield own, ReplayedMember()
    if not limits.groups:
        return
    floor_key = FLOORS.get(key)
    floor = None if floor_key is None else table.limits(floor_key).resolve(user, client_id)
    below: tuple[ReplayedLimit, ...] = ()
    for group in table.groups.chain(user, client_id):
        limit = limits.resolve_group(group)
        if limit is not None:
            yield limit, ReplayedMember(own and _lower(own, key), below, floor and _lower(floor, key))
            below = (*below, _lower(limit, key))


def _lower(limit: Limit, key: QuotaKey) -> ReplayedLimit:
    is_shared = limit.scope is Scope.CLUSTER or KINDS[key].is_of_controller
    return ReplayedLimit(limit.tags, limit.value, limit.pacing, -1 if is_shared else 0)


@lru_cache(maxsize=16)
def _table(text: str, pacing: Pacing) -> QuotaTable:
    """Parse a quota file, once per Python process of Spark, and shorten long names like those in records."""
    table = in_force_at(parse(text), now_utc())
    return QuotaTable(
        {(_recorded(entity), key): value for (entity, key), value in table.values.items()},
        None,
        {(_recorded(entity), key): options for (entity, key), options in table.options().items()},
        None,
        pacing,
        groups=QuotaGroups().updated(
            {
                member if member.is_prefix else member._replace(name=shortened(member.name)): group
                for member, group in table.groups.members.items()
            },
            table.groups.parents,
        ),
    )


def _recorded(entity: Entity) -> Entity:
    names = {name: getattr(entity, name) for name in CLIENT}
    return replace(entity, **{name: shortened(of) for name, of in names.items() if isinstance(of, str)})
