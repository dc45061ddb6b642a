"""QuotaDelta: the differences between two quota tables, as stores, supervisor and workers pass them on.

Kafka's counterpart is `org.apache.kafka.image.ClientQuotasDelta`.
"""

# mypyc: skip, because only changes of quotas call it; no request does.
from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from weir.quotas.table.options import PLAIN, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Sized

    from weir.quotas.replication.throttles import ConfigKey
    from weir.quotas.table.groups import Member
    from weir.quotas.table.quota_entries import QuotaEntries
    from weir.quotas.table.quota_table import Quota


K = TypeVar("K")


class QuotaValue(NamedTuple):
    """A configured value (units per second, or percent of one thread), with its entry's options."""

    value: float
    options: Options = PLAIN


Changes: TypeAlias = "Mapping[Quota, QuotaValue | None]"
"""Quota → value after the change; None if the value is removed."""


class QuotaDelta(NamedTuple):
    """Changed values of enforced entries, of shadow entries, of replication throttles, and of groups."""

    enforced: Changes = MappingProxyType({})
    shadow: Changes = MappingProxyType({})
    replication: Mapping[ConfigKey, str | None] = MappingProxyType({})
    members: Mapping[Member, str | None] = MappingProxyType({})
    """Member → its group after the change; None for none."""
    parents: Mapping[str, str | None] = MappingProxyType({})
    """Group → its parent after the change, "" for none; None if the group is removed."""

    @property
    def _parts(self) -> tuple[Sized, ...]:
        return self.enforced, self.shadow, self.replication, self.members, self.parents

    @property
    def number(self) -> int:
        """Number of changed values."""
        return sum(len(part) for part in self._parts)

    def parts(self, size: int) -> Iterator[QuotaDelta]:
        """Yield deltas of at most `size` values of each kind; one without values if there are no changes."""
        enforced, shadow = list(self.enforced.items()), list(self.shadow.items())
        replication = list(self.replication.items())
        members, parents = list(self.members.items()), list(self.parents.items())
        for start in range(0, max(1, *(len(part) for part in self._parts)), size):
            part = slice(start, start + size)
            yield QuotaDelta(
                dict(enforced[part]),
                dict(shadow[part]),
                dict(replication[part]),
                dict(members[part]),
                dict(parents[part]),
            )

    @classmethod
    def joined(cls, parts: Sequence[QuotaDelta]) -> QuotaDelta:
        """Return one delta with the changes of all parts; of a value in several parts, the last change."""
        return cls(
            {quota: new for part in parts for quota, new in part.enforced.items()},
            {quota: new for part in parts for quota, new in part.shadow.items()},
            {key: new for part in parts for key, new in part.replication.items()},
            {member: new for part in parts for member, new in part.members.items()},
            {group: new for part in parts for group, new in part.parents.items()},
        )


NO_DELTA: Final = QuotaDelta()


def changed(before: Mapping[K, str], after: Mapping[K, str]) -> dict[K, str | None]:
    """Return key → text after the change, None if it is removed, for all keys whose texts differ."""
    if before is after:
        return {}
    removed: dict[K, str | None] = dict.fromkeys(key for key in before if key not in after)
    return removed | {key: text for key, text in after.items() if before.get(key) != text}


def difference(before: QuotaEntries, after: QuotaEntries) -> dict[Quota, QuotaValue | None]:
    """Return the changes that lead from `before` to `after`. Compares all values: 100,000 take 0.2 s."""
    changes: dict[Quota, QuotaValue | None] = {}
    if before is not after:
        for quota in after.values:
            new = after.get(quota)
            if new != before.get(quota):
                changes[quota] = new
        changes |= dict.fromkeys(quota for quota in before.values if quota not in after.values)
    return changes
