"""Read candidate quota files, and find the budget that each client uses under each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.types import BooleanType, DoubleType, StringType, StructField, StructType

from weir.pipeline.outcome import PipelineError
from weir.quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, parse
from weir.quotas.table.bounded_names import shortened
from weir.quotas.table.limits import Limit
from weir.quotas.table.options import Pacing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORDED: Final = "recorded"
"""Name that results give to the recorded throttle times, in place of the name of a candidate quota file."""
KEYS: Final = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
DRAWS: Final = StructType(
    [
        StructField("candidate", StringType()),
        StructField("quota", StringType()),
        StructField("user", StringType()),
        StructField("client_id", StringType()),
        StructField("of_user", StringType()),
        StructField("of_client_id", StringType()),
        StructField("of_prefix", StringType()),
        StructField("limit", DoubleType()),
        StructField("pacing", StringType()),
        StructField("scope", StringType()),
        StructField("in_force", DoubleType()),
        StructField("held_back", BooleanType()),
    ]
)
"""Columns of the budget that a client uses under a candidate quota file: `of_user`, `of_client_id` and
`of_prefix` identify the budget, and are "" for a part that the budget does not distinguish. A client without
a limit has no row. `pacing` and `scope` are those of the entry, as written in a quota file. `in_force` is the
limit of the same budget in the first file, null if other clients share the budget there. `held_back` is true
if a client of the budget was told to wait when it was recorded, by any quota.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate quota file: its name in results, and its text."""

    name: str
    text: str


def read_candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Read quota files; give each a unique name: its file name, or its path if another file has the same
    name. Raises PipelineError if a file cannot be read or parsed.
    """
    names: dict[str, int] = {RECORDED: 1}
    twice = {path.name for path in paths if sum(other.name == path.name for other in paths) > 1}
    found = []
    for path in paths:
        name = _said(str(path) if path.name in twice else path.name)
        names[name] = names.get(name, 0) + 1
        found.append(Candidate(name if names[name] == 1 else f"{name} #{names[name]}", _text(path)))
    return found


def _said(name: str) -> str:
    """Return a file's name for results, with a question mark for each byte that is not UTF-8, because Spark
    and JSON accept only UTF-8.
    """
    return name.encode("utf-8", "replace").decode()


def _text(path: Path) -> str:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{path}: not UTF-8") from None
    try:
        parse(text)
    except QuotaFileError as error:
        raise PipelineError(f"{path}: {error}") from None
    return text


def not_replayed(candidate: Candidate) -> list[str]:
    """Return lines for the operator about entries of the candidate file that a replay ignores: one line per
    type of entry, with the number of entries.
    """
    table = parse(candidate.text)
    topics = sum(entity.topic is not None for entity, _key in table.values)
    addresses = sum(entity.ip is not None for entity, _key in table.values)
    left_out = {
        "shadow entries (they throttle no client)": len(table.shadow),
        "rates of topics (records have no topics)": topics,
        "rates of connections (records have no addresses)": addresses,
    }
    return [f"{candidate.name}: {n} {what} left out" for what, n in left_out.items() if n]


def draws(
    clients: DataFrame, candidates: Sequence[Candidate], unnamed: str, pacing: Pacing = Pacing.KAFKA
) -> DataFrame:
    """Return the budgets that clients use under each candidate quota file, one row per file, quota and client
    (`DRAWS`); `clients` has the columns `user`, `client_id` and `held_back`, and may repeat clients.

    A client without client-id is treated as if its client-id were `unnamed`. Byte rates whose entries set no
    pacing (kind of limiter) get `pacing`.
    """

    def resolve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        types = {"limit": pa.float64(), "in_force": pa.float64(), "held_back": pa.bool_()}
        names = DRAWS.fieldNames()
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("user", "client_id", "held_back"))
            rows = [
                (*row, held_back)
                for user, client_id, held_back in zip(*columns, strict=True)
                for row in _draws(candidates, user, client_id, unnamed, pacing)
            ]
            drawn = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            arrays = [
                pa.array(column, types.get(name, pa.string()))
                for column, name in zip(drawn, names, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    names = (F.coalesce(name, F.lit("")).alias(name) for name in ("user", "client_id"))
    each = clients.groupBy(*names).agg(F.max("held_back").alias("held_back"))
    return _of_budgets(each.mapInArrow(resolve, DRAWS), candidates[0].name)


def _of_budgets(draws: DataFrame, first: str) -> DataFrame:
    """Return the draws (`DRAWS`) with `in_force` and `held_back` of all clients of the budget instead of
    those of the client. `first` is the name of the first candidate.
    """
    of = Window.partitionBy("quota", "of_user", "of_client_id", "of_prefix")
    here = Window.partitionBy("quota", "of_user", "of_client_id", "of_prefix", "candidate")
    same = (F.count("in_force").over(here) == F.count("*").over(here)) & (
        F.count_if(F.col("candidate") == first).over(of) == F.count("*").over(here)
    )
    return draws.withColumns(
        {
            "in_force": F.when(same, F.col("in_force")),
            "held_back": F.max("held_back").over(here),
        }
    )


def _draws(
    candidates: Sequence[Candidate],
    user: str,
    client_id: str,
    unnamed: str,
    pacing: Pacing = Pacing.KAFKA,
) -> Iterator[tuple[str, str, str, str, str, str, str, float, str, str, float | None]]:
    in_force: dict[QuotaKey, Limit] = {}
    for candidate in candidates:
        table = _table(candidate.text, pacing)
        for key in KEYS:
            limit = table.limits(key).resolve(user, client_id or unnamed)
            if limit is not None:
                if candidate is candidates[0]:
                    in_force[key] = limit
                of_user, of_client_id, of_prefix, _topic, _ip = limit.tags
                other = in_force.get(key)
                is_same = other is not None and (
                    (other.tags, other.pacing, other.scope) == (limit.tags, limit.pacing, limit.scope)
                )
                yield (
                    candidate.name,
                    key.value,
                    user,
                    client_id,
                    of_user,
                    of_client_id,
                    of_prefix,
                    limit.value,
                    limit.pacing.value,
                    limit.scope.value,
                    other.value if other is not None and is_same else None,
                )


@lru_cache(maxsize=16)
def _table(text: str, pacing: Pacing) -> QuotaTable:
    """Parse the text of a quota file, once per Python process of Spark, and shorten long names like the names
    in records.
    """
    table = parse(text)
    return QuotaTable(
        {(_recorded(entity), key): value for (entity, key), value in table.values.items()},
        None,
        {(_recorded(entity), key): options for (entity, key), options in table.options().items()},
        None,
        pacing,
    )


def _recorded(entity: Entity) -> Entity:
    user, client_id = entity.user, entity.client_id
    return replace(
        entity,
        user=shortened(user) if isinstance(user, str) else user,
        client_id=shortened(client_id) if isinstance(client_id, str) else client_id,
    )
