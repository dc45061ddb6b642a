"""Sessions whose usage is counted, and what their records and traces add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.proxy.wire import Wire, new_connection
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.usage.records import ByQuota, TraceRecord, UsageRecord

START_MS: Final = 1_700_000_000_000
"""When the first interval began, as records tell it."""
SUMMED: Final = (
    "requests",
    "bytes_in",
    "bytes_out",
    "charged_bytes",
    "request_time_us",
    "response_time_us",
    "old_bytes",
    "mutations",
    "errors",
)
TRACED: Final = ("bytes_in", "bytes_out", "charged_bytes", "request_time_us", "old_bytes", "mutations")
QUOTAS: Final = tuple(field.name for field in msgspec.structs.fields(ByQuota))


def recorded(connection: Connection, registries: UsageRegistries) -> Connection:
    """The same connection, which nothing has come to yet, its usage counted in these registries."""
    connection.client.usage = registries.of(connection.node_id)
    return connection


def counted_wire(connection: Connection | None = None) -> tuple[Taken, Wire]:
    """Usage, with traces of all requests, and the wire of this connection, by default without quotas."""
    taken = Taken(UsageRegistries(trace_share=1.0))
    return taken, Wire(recorded(connection or new_connection(), taken.registries))


class Taken:
    def __init__(self, registries: UsageRegistries) -> None:
        self.registries = registries
        self.records: list[UsageRecord] = []
        self.traces: list[TraceRecord] = []
        self._going: Iterator[UsageRecord] | None = None

    def drain(self) -> list[UsageRecord]:
        self._finish()
        fresh = list(self.registries.drain(START_MS, 1000, "weir"))
        self.records += fresh
        self.traces += self.registries.take_traces(START_MS, "weir")
        return fresh

    def step(self) -> None:
        """Begin a drain, or go on with one by one record: the rest stays where it is."""
        self._going = self._going or self.registries.drain(START_MS, 1000, "weir")
        record = next(self._going, None)
        if record is None:
            self._going = None
        else:
            self.records.append(record)

    def _finish(self) -> None:
        if self._going is not None:
            self.records += self._going
            self._going = None


def total(records: Iterable[UsageRecord], **only: str) -> dict[str, float]:
    """The sums of all records, or of those with these values; what is 0 is left out."""
    sums: Counter[str] = Counter()
    for record in records:
        if all(getattr(record, name) == value for name, value in only.items()):
            sums.update({name: getattr(record, name) for name in SUMMED})
            sums.update({f"{name} ms": getattr(record.throttle_ms, name) for name in QUOTAS})
            sums.update({f"{name} violations": getattr(record.violations, name) for name in QUOTAS})
    return {name: round(value, 2) for name, value in sums.items() if value}


def total_traced(traces: Iterable[TraceRecord]) -> dict[str, float]:
    """The sums of all traces, under the names of `total`, as far as they have them."""
    sums: Counter[str] = Counter()
    for trace in traces:
        sums["requests"] += 1
        sums.update({name: getattr(trace, name) for name in TRACED})
        sums.update({f"{name} ms": getattr(trace.throttle_ms, name) for name in QUOTAS})
    return {name: round(value, 2) for name, value in sums.items() if value}
