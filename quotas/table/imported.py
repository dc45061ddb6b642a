"""Import of quotas from ZooKeeper or brokers.

Weir imports the quotas that its quota file can contain (`quota_file`). Other quotas are listed with
the reason why they were skipped.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weir.quotas.table.quota_file import QuotaFileError, render
from weir.quotas.table.quota_table import Quota, QuotaKey, QuotaTable

if TYPE_CHECKING:
    from weir.quotas.table.entities import Entity

_KEYS = {key.value: key for key in QuotaKey}


class Skipped(NamedTuple):
    """A quota, or all quotas of an entity, that were not imported."""

    where: str
    """Path of a znode, or an entity, as text."""
    key: str | None
    """Key of the quota; None for all quotas of `where`."""
    reason: str

    def __str__(self) -> str:
        """Return the place, the quota's key and the reason for skipping as one line."""
        return f"{self.where}: {self.key + ': ' if self.key is not None else ''}{self.reason}"


class Imported:
    """Quotas imported so far, and the quotas that were skipped, with reasons."""

    def __init__(self) -> None:
        self.values: dict[Quota, float] = {}
        self.skipped: list[Skipped] = []

    @property
    def table(self) -> QuotaTable:
        """Table of the quotas imported so far."""
        return QuotaTable(self.values)

    def take(self, where: str, entity: Entity, key: str, value: float) -> None:
        """Import a quota, or skip it with a reason."""
        reason = self._refusal(entity, key, value)
        if reason is not None:
            self.skip(where, key, reason)
        else:
            self.values[entity, _KEYS[key]] = value

    def skip(self, where: str, key: str | None, reason: str) -> None:
        """Record a quota that cannot be imported, with the reason. `where`: path of a znode, or an entity.
        `key`: None for all quotas of `where`.
        """
        self.skipped.append(Skipped(where, key, reason))

    def _refusal(self, entity: Entity, key: str, value: float) -> str | None:
        if key not in _KEYS:
            return "no quota that Weir knows"
        if (entity, _KEYS[key]) in self.values:
            return f"there is one for {entity} already"
        try:
            render(QuotaTable({(entity, _KEYS[key]): value}))
        except (QuotaFileError, ValueError) as error:
            return str(error)
        return None
