"""Usage counters: what the requests of one client and API group have used since they were drained last.

A request keeps its usage counters until its response: by then another interval may have begun, and counts
that. Every request of a client that is sampled has counters of its own, which are also its trace.
"""

from __future__ import annotations

from typing import Final

from usage.groups import GROUPS
from usage.records import NOTHING, VERSION, ByQuota, TraceRecord, UsageRecord

PRODUCER: Final = 0
CONSUMER: Final = 1
REQUEST: Final = 2
MUTATION: Final = 3
TOPIC: Final = 4
"""Quotas, in the order of `ByQuota`: what a list of counts by quota is indexed with."""
_QUOTAS: Final = 5


class PendingCounters:
    """What is to be taken away from one broker's counts."""

    __slots__ = ("_traces_max", "active", "interval", "traces", "traces_dropped")

    def __init__(self, traces_max: int) -> None:
        self.active: list[UsageCounters] = []
        """Counters that have counted something."""
        self.interval = 0
        """Grows each time they are taken."""
        self.traces: list[RequestTrace] = []
        """Requests, in the order of their arrival."""
        self.traces_dropped = 0
        """Those for which there was no room."""
        self._traces_max = traces_max

    def note(self, traced: RequestTrace) -> None:
        """Keep a request until it is taken, if there is room."""
        if len(self.traces) < self._traces_max:
            self.traces.append(traced)
        else:
            self.traces_dropped += 1


class ClientUsage:
    """A client (user and client-id) at one broker: what it has used, by API group."""

    __slots__ = ("active", "client_id", "held", "traced", "usage_counters", "user")

    def __init__(self, user: str, client_id: str, *, traced: bool) -> None:
        self.user = user
        self.client_id = client_id
        self.traced = traced
        self.usage_counters: list[UsageCounters | None] = [None] * len(GROUPS)
        self.held = 0
        """How many sessions count for it."""
        self.active = 0
        """How many of its usage counters are to be drained."""


class UsageCounters:
    """What the requests of one client and API group have used, since it was drained last."""

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
        "request_time_us",
        "requests",
        "sessions",
        "throttle_ms",
        "violations",
    )

    def __init__(self, pending: PendingCounters, client: ClientUsage, group: int) -> None:
        """Begin with nothing; `group` is an index into `GROUPS`."""
        self._pending = pending
        self._active = False
        """True if something was counted, or will be at once; `PendingCounters` has it then."""
        self.client = client
        self.group = group
        self.drained = 0
        """How often what was counted was taken: tells intervals in which it was used."""
        self._clear()

    def _clear(self) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.charged_bytes = 0
        self.sessions = 0
        self.request_time_us = 0.0
        self.mutations = 0
        self.errors = 0
        self.throttle_ms: list[int] | None = None
        self.violations: list[int] | None = None

    def arrived(self, length: int, charged: int, now_ms: int) -> None:
        """A request of this many bytes is here, so many of which count for a byte rate."""
        del now_ms
        if not self._active:
            self._activate()
        self.requests += 1
        self.bytes_in += length
        self.charged_bytes += charged

    def answered(self, length: int, charged: int, now_ms: int) -> None:
        """Its response, of this many bytes, has begun."""
        del now_ms
        if not self._active:
            self._activate()
        self.bytes_out += length
        self.charged_bytes += charged

    def timed(self, us: float) -> None:
        """It has cost the broker so much time, or so much more."""
        if not self._active:
            self._activate()
        self.request_time_us += us

    def throttled(self, quota: int, throttle_ms: int, violations: int = 1) -> None:
        """A request was answered with this throttle time because of a quota, or with refusals."""
        if not self._active:
            self._activate()
        if self.throttle_ms is None or self.violations is None:
            self.throttle_ms, self.violations = [0] * _QUOTAS, [0] * _QUOTAS
        self.throttle_ms[quota] += throttle_ms
        self.violations[quota] += violations

    def mutated(self, partitions: int) -> None:
        """So many partitions were created or deleted."""
        if not self._active:
            self._activate()
        self.mutations += partitions

    def failed(self) -> None:
        """The client broke the protocol."""
        if not self._active:
            self._activate()
        self.errors += 1

    def grown(self, length: int) -> None:
        """The response is changed on its way, and by so much longer."""
        if not self._active:
            self._activate()
        self.bytes_out += length

    def over(self) -> None:
        """Nothing will be added for the request: it was answered, or nobody waits for an answer."""

    def measured(self, *, under_way: bool) -> None:
        """What the response is measured for will be charged at its end, or was."""

    def seen(self) -> None:
        """One more connection sends such requests."""
        if not self._active:
            self._activate()
        self.sessions += 1

    def _activate(self) -> None:
        self._active = True
        self.client.active += 1
        self._pending.active.append(self)

    def take(self, broker: int, time_ms: int, interval_ms: int, instance: str) -> UsageRecord:
        """What was used, as a record; from now on it counts anew."""
        record = UsageRecord(
            version=VERSION,
            time_ms=time_ms,
            interval_ms=interval_ms,
            instance=instance,
            broker=broker,
            user=self.client.user,
            client_id=self.client.client_id,
            api=GROUPS[self.group].value,
            requests=self.requests,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            charged_bytes=self.charged_bytes,
            sessions=self.sessions,
            request_time_us=round(self.request_time_us, 3),
            mutations=self.mutations,
            throttle_ms=_by_quota(self.throttle_ms),
            violations=_by_quota(self.violations),
            errors=self.errors,
        )
        self._clear()
        self._active = False
        self.drained += 1
        self.client.active -= 1
        return record


class RequestTrace(UsageCounters):
    """One request of a client that is sampled: counted as any other, and noted by itself."""

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
    )

    def __init__(self, counts: UsageCounters, connection: int, api_key: int, api_version: int) -> None:
        super().__init__(counts._pending, counts.client, counts.group)
        self._counts = counts
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.arrived_ms = 0
        self.answered_ms = 0
        self._answered_in = 0
        self._is_over = False
        self._is_measured = False
        """Its response is, and not at its end yet."""

    def arrived(self, length: int, charged: int, now_ms: int) -> None:
        self._counts.arrived(length, charged, now_ms)
        self.arrived_ms = now_ms
        self.bytes_in += length
        self.charged_bytes += charged
        self._pending.note(self)

    def answered(self, length: int, charged: int, now_ms: int) -> None:
        self._counts.answered(length, charged, now_ms)
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

    def grown(self, length: int) -> None:
        self._counts.grown(length)
        self.bytes_out += length

    def over(self) -> None:
        self._is_over = True

    def measured(self, *, under_way: bool) -> None:
        self._is_measured = under_way

    @property
    def is_over(self) -> bool:
        """Whether nothing will be added. What was answered long ago is over, though no other response of its
        connection has come since.
        """
        if self._is_over or not self.answered_ms or self._is_measured:
            return self._is_over
        return self._answered_in < self._pending.interval - 1

    def trace(self, broker: int, offset_ms: int, instance: str) -> TraceRecord:
        """What is known of the request."""
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
            answered_ms=self.answered_ms + offset_ms if self.answered_ms else 0,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            charged_bytes=self.charged_bytes,
            request_time_us=round(self.request_time_us, 3),
            mutations=self.mutations,
            throttle_ms=_by_quota(self.throttle_ms),
        )


def _by_quota(counts: list[int] | None) -> ByQuota:
    if counts is None:
        return NOTHING
    producer, consumer, request, mutation, topic = counts
    return ByQuota(
        producer_byte_rate=producer,
        consumer_byte_rate=consumer,
        request_percentage=request,
        controller_mutation_rate=mutation,
        topic_byte_rate=topic,
    )
