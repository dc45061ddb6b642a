"""The usage registries of all brokers, drained once per interval.

Sans-IO: the usage writer drains the registries and passes the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.proxy.connection.usage import ConnectionUsage
from weir.proxy.connection.usage_registry import UsageRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.usage.records import TraceRecord, UsageRecord


class UsageRegistries:
    """The usage registries of all brokers behind one Weir."""

    def __init__(
        self,
        *,
        entities_max: int = 10_000,
        trace_share: float = 0.0,
        traces_max: int = 100_000,
        group_of: Callable[[str, str], str] = lambda _user, _client_id: "",
    ) -> None:
        """Begin without brokers. `entities_max` is the maximum number of clients per broker with usage
        records of their own; all further clients share one record (`<others>`). `trace_share` (0 to 1) is the
        share of clients whose requests are all traced. `traces_max` is the maximum number of traces per
        broker that are kept until `take_traces`. `group_of` returns the group of a user and client-id.
        """
        self._entities_max = entities_max
        self._trace_share = trace_share
        self._traces_max = traces_max
        self._group_of = group_of
        self._registries: dict[int, UsageRegistry] = {}
        self._connections = 0

    def of(self, node_id: int | None) -> ConnectionUsage:
        """Return an object that counts the usage of a new connection to this broker; None if the broker's id
        is not known.
        """
        broker = -1 if node_id is None else node_id
        registry = self._registries.get(broker)
        if registry is None:
            registry = UsageRegistry(broker, self._entities_max, self._trace_share, self._traces_max)
            self._registries[broker] = registry
        self._connections += 1
        return ConnectionUsage(registry, self._connections)

    def number_from(self, connections: int) -> None:
        """Number connections in traces from `connections` + 1 on."""
        self._connections = connections

    @property
    def traces_dropped(self) -> int:
        """Number of request traces that were dropped because their broker already had `traces_max` traces."""
        return sum(registry.pending.traces_dropped for registry in self._registries.values())

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """Yield the usage since the last drain, record by record. The interval that ends now began at
        `time_ms` (ms since 1970).

        Usage that is counted during the drain belongs to this drain or to the next one; none is lost or
        counted twice. The caller must exhaust the iterator.
        """
        for registry in list(self._registries.values()):
            yield from registry.drain(time_ms, interval_ms, instance, self._group_of)

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """Yield a record for each complete request trace, and remove these traces. `offset_ms` turns times of
        the reactor's clock into ms since 1970. The caller must exhaust the iterator.
        """
        for registry in list(self._registries.values()):
            yield from registry.take_traces(offset_ms, instance)
