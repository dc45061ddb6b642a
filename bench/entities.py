"""Measure the cost of many quotas: Weir alone, with quotas for 1, 1,000 and 100,000 client-ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bench.rows import ROWS, Row
from bench.targets import Target
from bench.targets.weir import with_entities

COUNTS: Final = (1, 1_000, 100_000)
SPREAD: Final = 1_000
"""Number of client-ids in the row whose requests each have another client-id than the request before."""

TARGETS: Final[tuple[Target, ...]] = tuple(with_entities(count) for count in COUNTS)
IN_A_HURRY: Final = TARGETS[:2]
"""Targets with `--hurry`: without the one that needs seconds to read the quotas of 100,000 client-ids."""


def rows() -> list[Row]:
    """Return two rows: small produce requests from one client-id, and the same requests from SPREAD
    client-ids.
    """
    (base,) = (row for row in ROWS if row.name == "produce-100b")
    many = f"{base.title}, each request from another of {SPREAD:,} client-ids"
    return [
        replace(base, title=f"{base.title}, one client-id"),
        replace(base, name=f"{base.name}-spread", title=many, client_ids=SPREAD),
    ]
