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
from weir.quotas.table.bounded_names import shortened
from weir.quotas.table.limits import Limit
from weir.quotas.table.options import Pacing

RECORDED: Final = "recorded"
"""Name that results give to the recorded throttle times, in place of the name of a candidate quota file."""
KEYS: Final = tuple(map(QuotaKey, RATES))
OF: Final = ("of_user", "of_client_id", "of_prefix")
"""Columns that identify a budget, "" for a part that the budget does not distinguish."""
_DRAWN: Final = {
    **dict.fromkeys(("candidate", "quota", "user", "client_id", *OF), pl.String),
    "limit": pl.Float64,
    "pacing": pl.String,
    "scope": pl.String,
    "in_force": pl.Float64,
}
"""Columns of the budgets that clients use under a candidate quota file. `pacing` and `scope` are those of the
entry, as written in a quota file. `in_force` is the limit of the same budget in the first file.
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
    topics = sum(entity.topic is not None for entity, _key in table.values)
    addresses = sum(entity.ip is not None for entity, _key in table.values)
    left_out = {
        "shadow entries (they throttle no client)": len(table.shadow),
        "rates of topics (records have no topics)": topics,
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
    """One row per client, quota and candidate: the number `client`, `quota` (an index of `KEYS`), and
    `budget`, `scope` and `home` (a hash of the names) of the budget.
    """
    budgets: pl.DataFrame
    """One row per budget: its number `budget`, `candidate`, `quota`, `user` and `client_id` as in
    `tables.REPLAY`, `limit`, `pacing`, `in_force`, and `ranged`: True if its result is a range, because
    clients were held back under another limit.
    """


def drawn(
    clients: pl.DataFrame, candidates: Sequence[Candidate], unnamed: str, pacing: Pacing = Pacing.KAFKA
) -> Drawn:
    """Return the budgets that clients use. `clients` has the columns `CLIENT` and `held_back` (True if a
    client was told to wait when it was recorded, by any quota), one row per client.

    A client without client-id is treated as if its client-id were `unnamed`. Byte rates whose entries set no
    pacing (kind of limiter) get `pacing`. The recorded throttle times are grouped by the budgets of the first
    candidate; a client without one has a budget of its own.
    """
    rows = [
        row
        for user, client_id in clients.select(CLIENT).iter_rows()
        for row in _draws(candidates, user, client_id, unnamed, pacing)
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
    first = each.filter(is_first).select(*CLIENT, "quota", *OF, has_limit=True)
    recorded = clients.join(quotas, how="cross").join(first, on=(*CLIENT, "quota"), how="left")
    recorded = recorded.with_columns(candidate=pl.lit(RECORDED), ranged=False)
    both = pl.concat([limited, recorded], how="diagonal")
    prefix = pl.when(pl.col("of_prefix") != "").then(pl.col("of_prefix") + "*")
    of_user, of_client_id = (pl.when(pl.col(name) != "").then(name) for name in OF[:2])
    own = pl.col("has_limit").is_null()
    both = both.with_columns(
        name=pl.when(own).then("user").otherwise(of_user),
        name_id=pl.when(own).then("client_id").otherwise(pl.coalesce(prefix, of_client_id)),
    )
    same = ("candidate", "quota", "name", "name_id", *OF, "limit", "pacing", "scope", "in_force", "ranged")
    # A hash of polars is computed here on the driver only: another release of polars has another.
    names = (pl.struct("candidate", "quota", "name", "name_id").hash() // 4).cast(pl.Int64)
    budgets = both.select(same).unique().with_row_index("budget").with_columns(home=names)
    numbers = clients.select(CLIENT).with_row_index("client")
    draws = both.join(budgets, on=same, nulls_equal=True).join(numbers, on=CLIENT)
    indices = {key.value: index for index, key in enumerate(KEYS)}
    quota = pl.col("quota").replace_strict(indices, return_dtype=pl.UInt8)
    renamed = budgets.drop(*OF, "scope", "home").rename({"name": "user", "name_id": "client_id"})
    return Drawn(numbers, draws.select("client", quota, "budget", "scope", "home"), renamed)


def _draws(
    candidates: Sequence[Candidate], user: str, client_id: str, unnamed: str, pacing: Pacing
) -> Iterator[tuple[object, ...]]:
    in_force: dict[QuotaKey, Limit] = {}
    for candidate in candidates:
        table = _table(candidate.text, pacing)
        for key in KEYS:
            limit = table.limits(key).resolve(user, client_id or unnamed)
            if limit is None:
                continue
            if candidate is candidates[0]:
                in_force[key] = limit
            other = in_force.get(key)
            names = candidate.name, key.value, user, client_id, *limit.tags[:3]
            options = limit.pacing.value, limit.scope.value
            is_same = other is not None and other._replace(value=limit.value) == limit
            yield (*names, limit.value, *options, other.value if other is not None and is_same else None)


@lru_cache(maxsize=16)
def _table(text: str, pacing: Pacing) -> QuotaTable:
    """Parse a quota file, once per Python process of Spark, and shorten long names like those in records."""
    table = parse(text)
    return QuotaTable(
        {(_recorded(entity), key): value for (entity, key), value in table.values.items()},
        None,
        {(_recorded(entity), key): options for (entity, key), options in table.options().items()},
        None,
        pacing,
    )


def _recorded(entity: Entity) -> Entity:
    names = {name: getattr(entity, name) for name in CLIENT}
    return replace(entity, **{name: shortened(of) for name, of in names.items() if isinstance(of, str)})
