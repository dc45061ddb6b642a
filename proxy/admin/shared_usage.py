"""Use of the quotas of a client that several Weirs share: the JSON of `GET /shared-usage`.

`weir quotas explain` reads the JSON with the same types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from weir.proxy.admin.entities import broker_label
from weir.proxy.control.budgets import CLUSTER
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.proxy.control.snapshots.names import shortened
from weir.proxy.handlers.sasl.identity import ANONYMOUS
from weir.quotas.handover import QuotasName
from weir.quotas.table.entities import Tags
from weir.quotas.table.quota_kind import KINDS

PATH: Final = "/shared-usage"
ENFORCED: Final = "enforce"
SHADOW: Final = "shadow"
US_PER_S: Final = 1_000_000
_KEYS: Final = {kind.limiters: key for key, kind in KINDS.items() if kind.limiters}
"""Last word of a quota's name in the registry → its key."""


class SharedUsage(msgspec.Struct, frozen=True):
    """Use of one budget since this Weir started. Other clients may share the budget."""

    key: str
    broker: str
    """Node id of the broker; `cluster` for a budget of all brokers."""
    mode: str
    """Mode of the quota entry that the budget belongs to: `enforce` or `shadow`, as in the quota file."""
    user: str
    client_id: str
    client_id_prefix: str
    own: float
    """Units that clients of this Weir have used: bytes, seconds of one thread's time, or partitions."""
    others: float
    """Units that the other Weirs have reported."""


class SharedUsageReport(msgspec.Struct, frozen=True):
    """A client's use of shared quotas; the content of the JSON response."""

    user: str
    client_id: str
    weirs: int
    """Number of Weirs heard within ten seconds, this one included; 0 if usage is not shared."""
    budgets: list[SharedUsage]
    """The client's shared budgets that were used."""


def report(sharing: UsageSharing | None, user: str, client_id: str) -> SharedUsageReport:
    """Return what clients of this Weir and of others have used of a client's quotas. No budget is created."""
    user = user or ANONYMOUS
    budgets = [] if sharing is None else list(_budgets(sharing, user, client_id))
    return SharedUsageReport(user, client_id, 0 if sharing is None else sharing.weirs, budgets)


def _budgets(sharing: UsageSharing, user: str, client_id: str) -> Iterator[SharedUsage]:
    for name, tags, own, others in sharing.limiters.usages(user, client_id):
        yield _budget(name, tags, own, others)


def _budget(name: QuotasName, tags: Tags, own: float, others: float) -> SharedUsage:
    node_id, kind, is_shadow = name
    key = _KEYS[kind.split()[-1]]
    scale = US_PER_S if KINDS[key].unit == "percent" else 1
    user, client_id, client_id_prefix, *_others = map(shortened, tags)
    return SharedUsage(
        key.value,
        CLUSTER if node_id is None else broker_label(node_id),
        SHADOW if is_shadow else ENFORCED,
        user,
        client_id,
        client_id_prefix,
        own / scale,
        others / scale,
    )
