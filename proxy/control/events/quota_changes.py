"""Tell when another quota table is in force, and which values differ from the table before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from weir.proxy.control.events.records import Publish, QuotaChange, QuotaChanged
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.throttled import SLICE
from weir.quotas.table.quota_table import Quota

SHOWN_MAX: Final = 20
"""Maximum number of changed values in one event."""


class QuotaChanges:
    """Publishes the differences of the table in force, at most one event per call of `look`."""

    def __init__(self, registry: QuotaRegistry, publish: Publish) -> None:
        """Begin with the table that is in force now."""
        self._registry = registry
        self._publish = publish
        self._before = registry.table

    def look(self) -> Iterator[None]:
        """Publish an event if another table has come into force since the previous call. The work is done in
        steps of about a millisecond; the caller serves sockets at each yield.
        """
        before, after = self._before, self._registry.table
        if before is after:
            return
        self._before = after
        changed, shown = 0, list[QuotaChange]()
        for shadow in (False, True):
            old, new = (before.shadow, after.shadow) if shadow else (before.values, after.values)
            for change in _differences(old, new, shadow=shadow):
                if change is None:
                    yield
                else:
                    changed += 1
                    shown += [change][: SHOWN_MAX - len(shown)]
        if changed:
            self._publish(QuotaChanged(quotas=len(after), changed=changed, changes=tuple(shown)))


def _differences(
    old: Mapping[Quota, float], new: Mapping[Quota, float], *, shadow: bool
) -> Iterator[QuotaChange | None]:
    """Yield each changed value; None where the caller may serve sockets."""
    for quotas, gone in ((new, False), (old, True)):
        for part in slices(quotas, SLICE):
            for quota in part:
                before, after = old.get(quota), new.get(quota)
                if before != after and (after is None or not gone):
                    yield _change(quota, before, after, shadow=shadow)
            yield None


def _change(quota: Quota, before: float | None, after: float | None, *, shadow: bool) -> QuotaChange:
    entity, key = quota
    return QuotaChange(entity=str(entity), quota=key.value, shadow=shadow, before=before, after=after)
