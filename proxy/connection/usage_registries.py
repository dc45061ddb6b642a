"""The registries of all brokers, drained once an interval.

Sans-IO: whoever writes the records drains the registries, and tells them the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.connection.usage import ConnectionUsage
from proxy.connection.usage_registry import UsageRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usage.records import TraceRecord, UsageRecord


class UsageRegistries:
    """The registries of all brokers behind one Weir."""

    def __init__(
        self, *, entities_max: int = 10_000, trace_share: float = 0.0, traces_max: int = 100_000
    ) -> None:
        """At most so many clients per broker have records of their own, the others share one (`<others>`).
        Of so large a share of the clients every request is traced; at most so many are kept per broker
        until they are taken.
        """
        self._entities_max = entities_max
        self._trace_share = trace_share
        self._traces_max = traces_max
        self._registries: dict[int, UsageRegistry] = {}
        self._connections = 0

    def of(self, node_id: int | None) -> ConnectionUsage:
        """For a new session with a broker; its id may not be known."""
        broker = -1 if node_id is None else node_id
        registry = self._registries.get(broker)
        if registry is None:
            registry = UsageRegistry(broker, self._entities_max, self._trace_share, self._traces_max)
            self._registries[broker] = registry
        self._connections += 1
        return ConnectionUsage(registry, self._connections)

    @property
    def traces_dropped(self) -> int:
        """RequestTrace requests for which there was no room."""
        return sum(registry.pending.traces_dropped for registry in self._registries.values())

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """Take what was used since the last drain, record by record; the interval that ends now began at
        `time_ms` (since 1970). What is used while this goes on may be in it, or in the next one; nothing is
        lost or counted twice, but each drain must be gone through to its end.
        """
        for registry in list(self._registries.values()):
            yield from registry.drain(time_ms, interval_ms, instance)

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """Take the traced requests that are over, one by one; `offset_ms` turns the sessions' time into that
        since 1970. To be gone through to its end, as `drain`.
        """
        for registry in list(self._registries.values()):
            yield from registry.take_traces(offset_ms, instance)
