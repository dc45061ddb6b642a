"""The usage counters of all clients of one broker.

Clients choose their names, so the number of clients with counters of their own is bounded. All further
clients share one object, and have one usage record (`<others>`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from weir.proxy.connection.usage_counters import ClientUsage, PendingCounters, RequestTrace, UsageCounters
from weir.quotas.table.bounded_names import OVERFLOW, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.usage.records import TraceRecord, UsageRecord

_HASHES: Final = 2**32


class UsageRegistry:
    """Usage of the clients of one broker since the last drain."""

    __slots__ = (
        "_clients",
        "_clients_max",
        "_shared",
        "_trace_hash_max",
        "broker",
        "pending",
    )

    def __init__(self, broker: int, clients_max: int, trace_share: float, traces_max: int) -> None:
        self.broker = broker
        self._clients_max = clients_max
        self._trace_hash_max = int(trace_share * _HASHES)
        self.pending = PendingCounters(traces_max)
        self._clients: dict[tuple[str, str], ClientUsage] = {}
        self._shared = ClientUsage(OVERFLOW, OVERFLOW, traced=False)
        """Usage shared by all clients that came after `clients_max` clients had counters of their own."""

    def __len__(self) -> int:
        """Return the number of clients that have counters of their own."""
        return len(self._clients)

    def client(self, user: str, client_id: str) -> ClientUsage:
        """Return the object in which one more connection of this client records its usage. If `clients_max`
        clients have objects already, further clients share one. The caller must call `leave` when the
        connection ends or gets another client.
        """
        key = shortened(user), shortened(client_id)
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= self._clients_max:
                return self._shared
            client = self._clients[key] = ClientUsage(*key, traced=self._is_sampled(key))
        client.held += 1
        return client

    def leave(self, client: ClientUsage) -> None:
        """Note that a connection does not record its usage for this client any more. Delete the client if it
        has no other connection and no usage to drain.
        """
        if client is not self._shared:
            client.held -= 1
            self._forget(client)

    def _forget(self, client: ClientUsage) -> None:
        if not client.held and not client.active:
            key = client.user, client.client_id
            if self._clients.get(key) is client:  # a late response may come after the removal
                del self._clients[key]
                client.is_removed = True

    def _is_sampled(self, key: tuple[str, str]) -> bool:
        """Return True if all requests of this client are traced. The result depends only on the user and the
        client-id, so all brokers and all Weir processes trace the same clients.
        """
        return crc32("\0".join(key).encode("utf-8", "surrogatepass")) < self._trace_hash_max

    def usage_counters(self, client: ClientUsage, group: int) -> UsageCounters:
        """Return the counters of a client for one API group (an index of `GROUPS`)."""
        usage_counters = client.usage_counters[group]
        if usage_counters is None:
            usage_counters = client.usage_counters[group] = UsageCounters(self.pending, client, group)
        return usage_counters

    def drain(
        self, time_ms: int, interval_ms: int, instance: str, group_of: Callable[[str, str], str]
    ) -> Iterator[UsageRecord]:
        """Yield a usage record for each client and API group of this broker with usage since the last drain.
        No two records have the same names and the same API group. `group_of` returns the group of a user and
        client-id.
        """
        pending = self.pending
        pending.interval += 1
        self._attribute_late()
        active, pending.active = pending.active, []
        for usage_counters in active:
            client = usage_counters.client
            group = group_of(client.user, client.client_id)
            yield usage_counters.take(self.broker, time_ms, interval_ms, instance, group)
            if client is not self._shared:
                self._forget(client)

    def _attribute_late(self) -> None:
        """Add late counts of removed clients to the counters that the registry has for the same clients now,
        so that no client has two records. Put a client back that the registry lacks; without room for it, its
        late counts go to the overflow entity.
        """
        late, self.pending.late = self.pending.late, []
        for usage_counters in late:
            removed = usage_counters.client
            client = self._clients.get((removed.user, removed.client_id))
            if client is None and len(self._clients) < self._clients_max:
                client = self._clients[removed.user, removed.client_id] = removed
                removed.is_removed = False
            if client is removed:
                self.pending.active.append(usage_counters)
            else:
                self.usage_counters(client or self._shared, usage_counters.group).merge(usage_counters)

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """Yield a record for each complete trace of this broker's requests, and forget these traces.
        `offset_ms` turns times of the reactor's clock into ms since 1970.
        """
        over: list[RequestTrace] = []
        under_way: list[RequestTrace] = []
        for traced in self.pending.traces:
            (over if traced.is_over else under_way).append(traced)
        self.pending.traces = under_way
        for traced in over:
            yield traced.trace(self.broker, offset_ms, instance)
