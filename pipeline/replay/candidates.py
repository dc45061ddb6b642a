"""Read candidate quota files, and find the budget that each client uses under each candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from weir.pipeline.outcome import PipelineError
from weir.quotas import Entity, QuotaFileError, QuotaKey, QuotaTable, parse
from weir.quotas.table.bounded_names import shortened
from weir.quotas.table.options import Pacing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORDED: Final = "recorded"
"""Name in the results for the recorded throttle times, which are compared with those of the candidate files.
"""
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
    ]
)
"""Columns of the budget that a client uses under a candidate: `of_user`, `of_client_id` and `of_prefix`
identify the budget, and are "" for a part that the budget does not distinguish. A client without a limit has
no row. `pacing` and `scope` are those of the entry, as written in a quota file.
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
    """Return a file name with a question mark for each byte that is not UTF-8, because Spark and JSON accept
    only UTF-8.
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
    """Return lines for the operator that name the entries of the candidate file which a replay ignores: one
    line per type of entry, with the number of entries.
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
    """Return the budgets (`DRAWS`, one row per candidate, quota and client) that clients use by the rules of
    `quotas`; `clients` has the columns `user` and `client_id`.

    A client without client-id is treated as if its client-id were `unnamed`. Entries without a pacing get
    `pacing`.
    """

    def resolve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = DRAWS.fieldNames()
        for batch in batches:
            users, client_ids = batch.column("user").to_pylist(), batch.column("client_id").to_pylist()
            rows = [
                row
                for user, client_id in zip(users, client_ids, strict=True)
                for row in _draws(candidates, user, client_id, unnamed, pacing)
            ]
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            types = [pa.float64() if name == "limit" else pa.string() for name in names]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    names = (F.coalesce(name, F.lit("")).alias(name) for name in ("user", "client_id"))
    return clients.select(*names).distinct().mapInArrow(resolve, DRAWS)


def _draws(
    candidates: Sequence[Candidate],
    user: str,
    client_id: str,
    unnamed: str,
    pacing: Pacing = Pacing.KAFKA,
) -> Iterator[tuple[str, str, str, str, str, str, str, float, str, str]]:
    for candidate in candidates:
        table = _table(candidate.text, pacing)
        for key in KEYS:
            limit = table.limits(key).resolve(user, client_id or unnamed)
            if limit is not None:
                of_user, of_client_id, of_prefix, _topic, _ip = limit.tags
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
