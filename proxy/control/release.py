"""End the waits of connections for an operator, once their quota was raised.

A throttle time is computed when a request exceeds a quota, and does not change with the quota. So a client
may wait for hours for a quota that was a mistake. A broker cannot end that wait.
"""

from __future__ import annotations

from collections.abc import Generator

from weir.proxy.control.budgets import all_budgets, side_of
from weir.proxy.control.peers import charged_by
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.slices import slices
from weir.proxy.control.snapshots.connections import ConnectionFilter
from weir.proxy.control.snapshots.opened import OpenRelays
from weir.proxy.control.snapshots.sources import SnapshotSources
from weir.proxy.control.throttled import SLICE
from weir.quotas import Budget, MutationBudget, Tags


def end_waits(
    sources: SnapshotSources, relays: OpenRelays, wanted: ConnectionFilter
) -> Generator[None, None, int]:
    """End the throttles of the chosen connections at the time that present usage and limits give, if that is
    earlier. Return the number of connections whose throttle ends earlier. Yield between steps of about a
    millisecond.
    """
    now_ms, number = sources.now_ms(), 0
    yield from end_throttles(sources.registry, wanted, now_ms)
    mutations = side_of(sources.registry.mutations, shadow=False)
    for part in slices(list(relays.items()), SLICE // 4):
        for relay, opened in part:
            if wanted.has((relay, opened), now_ms, sources.registry.table.groups):
                charged = charged_by(relay.connection.client, mutations, shadow=False)
                until_ms = max((limiter.throttled_until_ms for limiter in charged), default=now_ms)
                number += relay.end_wait(until_ms)
        yield
    return number


def end_throttles(
    registry: QuotaRegistry, wanted: ConnectionFilter, now_ms: int
) -> Generator[None, None, None]:
    """End the throttles of the budgets that such connections may be charged to, as for `end_waits`. Every
    process has a copy of a budget: new connections, metrics and the page tell its throttle. Yield between
    steps.
    """
    for _where, _quota, budgets in list(all_budgets(registry, shadow=False)):
        for part in slices(list(budgets), SLICE):
            for budget in part:
                if isinstance(budget, Budget | MutationBudget) and _concerns(budget.tags, wanted):
                    budget.release(now_ms)
            yield


def _concerns(tags: Tags, wanted: ConnectionFilter) -> bool:
    """Return True if a budget may limit one of these connections: its names are theirs, or are left out. A
    group leaves no budget out, because its members may be charged to any.
    """
    pairs = ((tags.user, wanted.user), (tags.client_id, wanted.client_id))
    return all(not its or not theirs or its == theirs for its, theirs in pairs)
