"""Tell when another quota table is in force, and which values differ from the table before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.proxy.control.events.records import Publish, QuotaChanged, ValueChange
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.throttled import SLICE
from weir.quotas import QuotaTable
from weir.quotas.table.quota_delta import QuotaDelta, QuotaValue
from weir.quotas.table.quota_table import Quota
from weir.quotas.table.times import unix_ms

SHOWN_MAX: Final = 20
"""Maximum number of changed values in one event."""


class QuotaChanges:
    """Publishes the differences of the table in force, at most one event per call of `look`."""

    def __init__(self, registry: QuotaRegistry, publish: Publish) -> None:
        self._registry = registry
        self._publish = publish
        self._newest = registry.table
        self._steps: list[tuple[QuotaTable, QuotaDelta]] = []
        """(Table, delta that leads to the next table), for each new table since the previous event."""
        registry.on_update.append(self._note)

    def _note(self, _in_force: QuotaTable) -> None:
        before, self._newest = self._newest, self._registry.table
        self._steps.append((before, self._newest.delta(before)))

    def look(self) -> Iterator[None]:
        """Publish an event if values have changed since the previous call. The work is done in steps of about
        a millisecond; the caller serves sockets at each yield.
        """
        steps, self._steps = self._steps, []
        first: dict[tuple[bool, Quota], QuotaValue | None] = {}
        """(True for a shadow entry, quota) → value before its first change."""
        for before, delta in steps:
            for shadow, side in ((False, delta.enforced), (True, delta.shadow)):
                for part in slices(side, SLICE):
                    for quota in part:
                        first.setdefault((shadow, quota), before.get(quota, shadow=shadow))
                    yield
        after, changed, shown = self._newest, 0, list[ValueChange]()
        for entries in slices(first.items(), SLICE):
            for (shadow, quota), was in entries:
                value = after.get(quota, shadow=shadow)
                if (was and was.value) != (value and value.value):
                    changed += 1
                    if len(shown) < SHOWN_MAX:
                        shown.append(_change(quota, was, value, shadow=shadow))
            yield
        if changed:
            self._publish(QuotaChanged(quotas=len(after), changed=changed, changes=tuple(shown)))


def _change(
    quota: Quota, before: QuotaValue | None, after: QuotaValue | None, *, shadow: bool
) -> ValueChange:
    entity, key = quota
    entry = after or before
    until = None if entry is None else entry.options.until
    return ValueChange(
        entity=str(entity),
        quota=key.value,
        shadow=shadow,
        before=before and before.value,
        after=after and after.value,
        until_ms=None if until is None else unix_ms(until),
    )
