"""Usage counters: the usage of one client in one API group since the counters were last drained.

A request keeps its counters until its response has come. If the counters are drained between request and
response, the response counts for the later interval. Every request of a sampled client also has counters of
its own: its trace.
"""

from __future__ import annotations

from typing import Final

from weir.usage.groups import GROUPS
from weir.usage.records import NOTHING, VERSION, ByQuota, TraceRecord, UsageRecord

PRODUCER: Final = 0
CONSUMER: Final = 1
REQUEST: Final = 2
MUTATION: Final = 3
TOPIC: Final = 4
OLD_READ: Final = 5
"""Index of each quota in a list of counts by quota; the order is that of `ByQuota`."""
_QUOTAS: Final = 6


class PendingCounters:
    """Usage counters and request traces of one broker's clients that were not taken yet: `drain` takes the
    counters, `take_traces` the traces.
    """

    __slots__ = ("_traces_max", "active", "interval", "late", "traces", "traces_dropped")

    def __init__(self, traces_max: int) -> None:
        self.active: list[UsageCounters] = []
        """Usage counters that have counted an event since the last drain, of clients in the registry."""
        self.late: list[UsageCounters] = []
        """Usage counters that have counted an event since the last drain, of clients that were removed from
        the registry before the event, such as a late response.
        """
        self.interval = 0
        """Number of drains so far, which is also the number of the current interval."""
        self.traces: list[RequestTrace] = []
        """Requests of sampled clients that no call of `take_traces` has taken yet, in the order of their
        arrival.
        """
        self.traces_dropped = 0
        """Number of request traces that were dropped because `traces_max` traces were kept already."""
        self._traces_max = traces_max

    def note(self, traced: RequestTrace) -> None:
        """Keep a traced request until it is taken; drop it if `traces_max` requests are kept already."""
        if len(self.traces) < self._traces_max:
            self.traces.append(traced)
        else:
            self.traces_dropped += 1


class ClientUsage:
    """Usage of a client (user and client-id) at one broker, by API group."""

    __slots__ = ("active", "client_id", "held", "is_removed", "traced", "usage_counters", "user")

    def __init__(self, user: str, client_id: str, *, traced: bool) -> None:
        self.user = user
        self.client_id = client_id
        self.traced = traced
        self.usage_counters: list[UsageCounters | None] = [None] * len(GROUPS)
        self.held = 0
        """Number of open connections that record their usage in this object."""
        self.active = 0
        """Number of this client's usage counters that have counted an event since the last drain."""
        self.is_removed = False
        """True if the registry has removed this object: a new connection of the client gets another one."""


class UsageCounters:
    """Usage of one client in one API group since the last drain."""

    __slots__ = (
        "_active",
        "_pending",
        "bytes_in",
        "bytes_out",
        "charged_bytes",
        "client",
        "drained",
        "errors",
        "group",
        "mutations",
        "old_bytes",
        "request_time_us",
        "requests",
        "response_time_us",
        "sessions",
        "throttle_ms",
        "violations",
    )

    def __init__(self, pending: PendingCounters, client: ClientUsage, group: int) -> None:
        """Begin at zero; `group` is an index of `GROUPS`."""
        self._pending = pending
        self._active = False
        """True if these counters are in `PendingCounters.active`, because an event was counted since the last
        drain or is being counted now.
        """
        self.client = client
        self.group = group
        self.drained = 0
        """Number of drains that have taken these counters. A connection compares this number with the one of
        its last count, so that it is counted as active once per interval.
        """
        self._clear()

    def _clear(self) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.charged_bytes = 0
        self.sessions = 0
        self.request_time_us = 0.0
        self.response_time_us = 0
        self.old_bytes = 0
        self.mutations = 0
        self.errors = 0
        self.throttle_ms: list[int] | None = None
        self.violations: list[int] | None = None

    def arrived(self, length: int, charged: int, now_ms: int) -> None:
        """Count a request of `length` bytes that has arrived. `charged` is the number of these bytes that
        count for a byte rate. `now_ms` is used by traces only.
        """
        del now_ms
        if not self._active:
            self._activate()
        self.requests += 1
        self.bytes_in += length
        self.charged_bytes += charged

    def answered(self, length: int, charged: int, now_ms: int, response_time_us: int = 0) -> None:
        """Count a response of `length` bytes that has begun, `response_time_us` (µs) after the broker got the
        request; 0 for a response of Weir's own. `charged` is the number of these bytes that count for a byte
        rate. `now_ms` is used by traces only.
        """
        del now_ms
        if not self._active:
            self._activate()
        self.bytes_out += length
        self.charged_bytes += charged
        self.response_time_us += response_time_us

    def timed(self, us: float) -> None:
        """Add `us` (µs) to the request time that the client's requests have cost."""
        if not self._active:
            self._activate()
        self.request_time_us += us

    def throttled(self, quota: int, throttle_ms: int, violations: int = 1) -> None:
        """Count a throttle time (ms) of a response because of `quota` (an index of `ByQuota`).
        `violations` is the number of times that the client has exceeded the quota: 1, or the number of
        refused changes.
        """
        if not self._active:
            self._activate()
        if self.throttle_ms is None or self.violations is None:
            self.throttle_ms, self.violations = [0] * _QUOTAS, [0] * _QUOTAS
        self.throttle_ms[quota] += throttle_ms
        self.violations[quota] += violations

    def mutated(self, partitions: int) -> None:
        """Count partitions that were created or deleted."""
        if not self._active:
            self._activate()
        self.mutations += partitions

    def read_old(self, size: int) -> None:
        """Count `size` bytes of old record batches in a response."""
        if not self._active:
            self._activate()
        self.old_bytes += size

    def failed(self) -> None:
        """Count a violation of the protocol by the client."""
        if not self._active:
            self._activate()
        self.errors += 1

    def grown(self, length: int) -> None:
        """Add `length` (bytes, negative if the response became shorter) to the counted size of responses,
        because a rewrite has changed the size of a response.
        """
        if not self._active:
            self._activate()
        self.bytes_out += length

    def over(self) -> None:
        """Mark the trace of a request as complete, because the request was answered or needs no answer. No
        effect in this class; `RequestTrace` overrides the method.
        """

    def measured(self, *, under_way: bool) -> None:
        """Keep the trace of a request open while the bytes of its response are being counted (`under_way`),
        because they are charged at the response's end. No effect in this class; `RequestTrace` overrides the
        method.
        """

    def seen(self) -> None:
        """Count a connection as active: its client has sent its first request of this API group in this
        interval.
        """
        if not self._active:
            self._activate()
        self.sessions += 1

    def _activate(self) -> None:
        self._active = True
        self.client.active += 1
        pending = self._pending
        (pending.late if self.client.is_removed else pending.active).append(self)

    def merge(self, other: UsageCounters) -> None:
        """Add the counts of `other`, and start `other` again at zero."""
        if not self._active:
            self._activate()
        self.requests += other.requests
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.charged_bytes += other.charged_bytes
        self.sessions += other.sessions
        self.request_time_us += other.request_time_us
        self.response_time_us += other.response_time_us
        self.old_bytes += other.old_bytes
        self.mutations += other.mutations
        self.errors += other.errors
        self.throttle_ms = _sums(self.throttle_ms, other.throttle_ms)
        self.violations = _sums(self.violations, other.violations)
        other._restart()

    def take(self, broker: int, time_ms: int, interval_ms: int, instance: str, group: str) -> UsageRecord:
        """Return the usage as a record, and start again at zero. `time_ms` is the beginning of the interval
        (ms since 1970), `interval_ms` its length, `group` the client's group.
        """
        record = UsageRecord(
            version=VERSION,
            time_ms=time_ms,
            interval_ms=interval_ms,
            instance=instance,
            broker=broker,
            user=self.client.user,
            client_id=self.client.client_id,
            group=group,
            api=GROUPS[self.group].value,
            requests=self.requests,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            charged_bytes=self.charged_bytes,
            sessions=self.sessions,
            request_time_us=round(self.request_time_us, 3),
            response_time_us=self.response_time_us,
            old_bytes=self.old_bytes,
            mutations=self.mutations,
            throttle_ms=_by_quota(self.throttle_ms),
            violations=_by_quota(self.violations),
            errors=self.errors,
        )
        self._restart()
        return record

    def _restart(self) -> None:
        self._clear()
        self._active = False
        self.drained += 1
        self.client.active -= 1


class RequestTrace(UsageCounters):
    """Trace of one request of a sampled client. Everything that is counted here is also counted in the
    client's counters.
    """

    __slots__ = (
        "_answered_in",
        "_counts",
        "_is_measured",
        "_is_over",
        "answered_ms",
        "api_key",
        "api_version",
        "arrived_ms",
        "connection",
        "correlation_id",
    )

    def __init__(
        self, counts: UsageCounters, connection: int, api_key: int, api_version: int, correlation_id: int
    ) -> None:
        super().__init__(counts._pending, counts.client, counts.group)
        self._counts = counts
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.arrived_ms = 0
        self.answered_ms = 0
        self._answered_in = 0
        self._is_over = False
        self._is_measured = False
        """True while the bytes of the response are being counted; they are charged at the response's end, and
        belong to the trace.
        """

    def arrived(self, length: int, charged: int, now_ms: int) -> None:
        self._counts.arrived(length, charged, now_ms)
        self.arrived_ms = now_ms
        self.bytes_in += length
        self.charged_bytes += charged
        self._pending.note(self)

    def answered(self, length: int, charged: int, now_ms: int, response_time_us: int = 0) -> None:
        self._counts.answered(length, charged, now_ms, response_time_us)
        self.answered_ms = now_ms
        self._answered_in = self._pending.interval
        self.bytes_out += length
        self.charged_bytes += charged

    def timed(self, us: float) -> None:
        self._counts.timed(us)
        self.request_time_us += us

    def throttled(self, quota: int, throttle_ms: int, violations: int = 1) -> None:
        self._counts.throttled(quota, throttle_ms, violations)
        if self.throttle_ms is None:
            self.throttle_ms = [0] * _QUOTAS
        self.throttle_ms[quota] += throttle_ms

    def mutated(self, partitions: int) -> None:
        self._counts.mutated(partitions)
        self.mutations += partitions

    def read_old(self, size: int) -> None:
        self._counts.read_old(size)
        self.old_bytes += size

    def grown(self, length: int) -> None:
        self._counts.grown(length)
        self.bytes_out += length

    def over(self) -> None:
        self._is_over = True

    def measured(self, *, under_way: bool) -> None:
        self._is_measured = under_way

    @property
    def is_over(self) -> bool:
        """True if the trace is complete. Usually the connection's next response completes a trace. A request
        that was answered two or more drains ago counts as complete without a next response.
        """
        if self._is_over or not self.answered_ms or self._is_measured:
            return self._is_over
        return self._answered_in < self._pending.interval - 1

    def trace(self, broker: int, offset_ms: int, instance: str) -> TraceRecord:
        """Return the request's trace as a record (`TraceRecord`). `offset_ms` is added to times
        of the reactor's clock to get ms since 1970.
        """
        return TraceRecord(
            version=VERSION,
            time_ms=self.arrived_ms + offset_ms,
            instance=instance,
            broker=broker,
            user=self.client.user,
            client_id=self.client.client_id,
            connection=self.connection,
            api=GROUPS[self.group].value,
            api_key=self.api_key,
            api_version=self.api_version,
            correlation_id=self.correlation_id,
            answered_ms=self.answered_ms + offset_ms if self.answered_ms else 0,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            charged_bytes=self.charged_bytes,
            request_time_us=round(self.request_time_us, 3),
            old_bytes=self.old_bytes,
            mutations=self.mutations,
            throttle_ms=_by_quota(self.throttle_ms),
        )


def _sums(some: list[int] | None, more: list[int] | None) -> list[int] | None:
    if some is None or more is None:
        return some or more
    return [one + another for one, another in zip(some, more, strict=True)]


def _by_quota(counts: list[int] | None) -> ByQuota:
    if counts is None:
        return NOTHING
    return ByQuota(**dict(zip(ByQuota.__struct_fields__, counts, strict=True)))
