"""Quotas that come from elsewhere (ZooKeeper, brokers): what of them Weir can hold, what not, and why.

Weir holds what its quota file can say (`quotas.quota_file`). The rest is listed, never lost in silence.
"""

# mypyc: skip, because only offline tools and the command line call it.
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quotas.quota_file import QuotaFileError, render
from quotas.table import Quota, QuotaKey, QuotaTable

if TYPE_CHECKING:
    from quotas.entities import Entity

_KEYS = {key.value: key for key in QuotaKey}


class Skipped(NamedTuple):
    """Something that was not imported."""

    where: str
    """A path, or an entity."""
    key: str | None
    """The quota's key; None if it is all that stands there."""
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.where}: {self.key + ': ' if self.key is not None else ''}{self.reason}"


class Imported:
    """A table in the making, and what was left out of it."""

    def __init__(self) -> None:
        self.values: dict[Quota, float] = {}
        self.skipped: list[Skipped] = []

    @property
    def table(self) -> QuotaTable:
        """What was taken so far."""
        return QuotaTable(self.values)

    def take(self, where: str, entity: Entity, key: str, value: float) -> None:
        """Take a quota, or note why not."""
        reason = self._refusal(entity, key, value)
        if reason is not None:
            self.skip(where, key, reason)
        else:
            self.values[entity, _KEYS[key]] = value

    def skip(self, where: str, key: str | None, reason: str) -> None:
        """Note what is left out."""
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
