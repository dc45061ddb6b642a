"""Entries with an end (`until`): from then on, the table is as if they were deleted.

The wall clock decides. Within one run of a process, a clock that goes back revives no entry: `EntryEnds`
remembers which have ended.

>>> from weir.quotas.table.options import Options
>>> from weir.quotas.table.quota_kind import QuotaKey
>>> from weir.quotas.table.times import read_time
>>> entry, end = (Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE), read_time("2026-12-01T07:00:00+01:00")
>>> table = QuotaTable({entry: 1000.0}, options={entry: Options(until=end)})
>>> [len(in_force_at(table, read_time(f"2026-12-01T{time}Z"))) for time in ("05:59:59", "06:00:00")]
[1, 0]
"""

# mypyc: skip, because only changes of quotas call it; no request does.
from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from weir.quotas.table.entities import Entity
from weir.quotas.table.options import Options
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.table.quota_entry import QuotaFileError
from weir.quotas.table.quota_table import Quota, QuotaTable


class EntryEnd(NamedTuple):
    """The end of an entry."""

    entity: Entity
    is_shadow: bool
    until: datetime


class EntryEnds:
    """The ends of the entries of the newest table: those that have come, and the next one."""

    def __init__(self) -> None:
        self.ended: frozenset[EntryEnd] = frozenset()
        """Entries of the table that have ended."""
        self.next: datetime | None = None
        """The next end of an entry; None if no entry has one."""

    def in_force(self, table: QuotaTable, now: datetime) -> QuotaTable:
        """Return the table without the entries that have ended; the same table if none has."""
        ends = frozenset(ends_of(table))
        self.ended = frozenset(end for end in ends if end.until <= now or end in self.ended)
        self.next = min((end.until for end in ends - self.ended), default=None)
        return _without(table, self.ended)


def ends_of(table: QuotaTable) -> Iterator[EntryEnd]:
    """Yield the end of each entry that has one."""
    for is_shadow in (False, True):
        found: dict[Entity, datetime] = {}
        for (entity, _key), options in table.options(shadow=is_shadow).items():
            if options.until is not None:
                found[entity] = options.until
        for entity, until in found.items():
            yield EntryEnd(entity, is_shadow, until)


def in_force_at(table: QuotaTable, now: datetime) -> QuotaTable:
    """Return the table without the entries that have ended by `now`; the same table if none has."""
    return EntryEnds().in_force(table, now)


def check_new_end(
    table: QuotaTable, changes: Collection[Quota], options: Options, *, shadow: bool = False
) -> None:
    """Raise QuotaFileError if values without an end would get the end in `options`, and are not among the
    changes of their entry: an entry has one end for all its values.
    """
    for entity in dict.fromkeys(entity for entity, _key in changes if options.until is not None):
        if table.options_of(entity, shadow=shadow).until is None:
            others = [
                key.value for key in table.rates_of(entity, shadow=shadow) if (entity, key) not in changes
            ]
            if others:
                raise QuotaFileError(
                    f"{' and '.join(others)} of {entity} would end, too; name it in the same change, "
                    "or give the end to a more specific entry"
                )


def _without(table: QuotaTable, ended: Collection[EntryEnd]) -> QuotaTable:
    removed: tuple[dict[Quota, QuotaValue | None], dict[Quota, QuotaValue | None]] = ({}, {})
    for end in ended:
        rates = table.rates_of(end.entity, shadow=end.is_shadow)
        removed[end.is_shadow].update({(end.entity, key): None for key in rates})
    return table.applied(QuotaDelta(*removed))
