"""Find names that get no entry, because they stand for no client or for several, or because a quota file
cannot contain them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sql

from weir.quotas.table.bounded_names import OVERFLOW
from weir.quotas.table.quota_entry import DEFAULT_MARKER

if TYPE_CHECKING:
    from pyspark.sql import Column

SHORTENED: Final = r"(?s)\A.{191}~[0-9a-f]{64}\z"
"""Regular expression of the names that `quotas.table.bounded_names.shortened` makes; no client has such a
name.
"""

WITHOUT: Final = "without a name"
LITERAL_DEFAULT: Final = f"called {DEFAULT_MARKER}"
OVERFLOW_NAME: Final = f"counted as {OVERFLOW}"
LONG: Final = "with a name that was shortened"
NO_TEXT: Final = "with a name that is no text"


def left_out(level: str) -> Column:
    """Return the column with the reason why an entity of this level cannot have an entry; null if it can have
    one.
    """
    parts = (sql.col("user"),) * ("user" in level) + (sql.col("client_id"),) * ("client-id" in level)
    return sql.coalesce(*map(_unsayable, parts))


def _unsayable(name: Column) -> Column:
    return (
        sql.when(name.isNull() | (name == ""), WITHOUT)
        .when(~sql.is_valid_utf8(name) | name.contains("\ufffd"), NO_TEXT)
        .when(name == DEFAULT_MARKER, LITERAL_DEFAULT)
        .when(name == OVERFLOW, OVERFLOW_NAME)
        .when(name.rlike(SHORTENED), LONG)
    )
