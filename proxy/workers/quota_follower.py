"""The quota table of a worker: whole at the start of its process, then only the changed values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import trio

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.supervisor import in_steps
from weir.proxy.workers.messages import QuotasChanged, QuotasInForce
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import ReplicationThrottles
from weir.quotas.table.groups import QuotaGroups
from weir.quotas.table.quota_delta import QuotaDelta

PART_MAX: Final = 250
"""Number of changed values of each mode in one message, which a worker decodes in about a millisecond."""


class QuotaFollower:
    """Puts the supervisor's changes of quotas in force."""

    def __init__(self, registry: QuotaRegistry) -> None:
        """Begin with the table that `registry` has in force."""
        self._registry = registry
        self._parts: list[QuotaDelta] = []

    async def take(self, message: QuotasChanged) -> None:
        """Keep the changes until the last part is there, then put them in force together."""
        self._parts.append(pickle.loads(message.pickled))  # noqa: S301  # ours
        if message.is_last:
            parts, self._parts = self._parts, []
            registry = self._registry
            registry.in_shadow = message.in_shadow
            registry.use(await trio.to_thread.run_sync(partial(self._prepared, parts)))
            await in_steps(registry.refresh())

    def _prepared(self, parts: Sequence[QuotaDelta]) -> QuotaTable:
        table = self._registry.table.applied(QuotaDelta.joined(parts))
        self._registry.prepare(table)
        return table


def table_of(message: QuotasInForce) -> QuotaTable:
    *entries, replication, members, parents = pickle.loads(message.pickled)  # noqa: S301  # ours
    groups = QuotaGroups().updated(members, parents)
    return QuotaTable(*entries, replication=ReplicationThrottles(replication), groups=groups)


def message_of(table: QuotaTable, *, in_shadow: bool) -> QuotasInForce:
    parts = (
        dict(table.values),
        dict(table.shadow),
        dict(table.options()),
        dict(table.options(shadow=True)),
        dict(table.replication.values),
        dict(table.groups.members),
        dict(table.groups.parents),
    )
    return QuotasInForce(pickle.dumps(parts), in_shadow)


def changes_of(delta: QuotaDelta, *, in_shadow: bool) -> Iterator[QuotasChanged]:
    """Yield the messages with these changes; one without changes if only the mode has changed."""
    parts = list(delta.parts(PART_MAX))
    for number, part in enumerate(parts, start=1):
        yield QuotasChanged(pickle.dumps(part), in_shadow, number == len(parts))
