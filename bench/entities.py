"""What it costs to have many quotas: Weir alone, with 1, 1,000 and 100,000 client-ids in its table."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bench.rows import ROWS, Row
from bench.targets import Target
from bench.targets.weir import with_entities

COUNTS: Final = (1, 1_000, 100_000)
SPREAD: Final = 1_000
"""Client-ids that ask, in the row where each request comes from another one."""

TARGETS: Final[tuple[Target, ...]] = tuple(with_entities(count) for count in COUNTS)
IN_A_HURRY: Final = TARGETS[:2]
"""Without the one that takes seconds to read its quotas."""


def rows() -> list[Row]:
    """The same load from one client-id and from many."""
    (base,) = (row for row in ROWS if row.name == "produce-100b")
    many = f"{base.title}, each request from another of {SPREAD:,} client-ids"
    return [
        replace(base, title=f"{base.title}, one client-id"),
        replace(base, name=f"{base.name}-spread", title=many, client_ids=SPREAD),
    ]
