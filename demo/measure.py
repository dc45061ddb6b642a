"""Compute rates from two readings of clients' counters, and decide if they meet the quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weir.demo.client_specs import ClientSpec

TOLERANCE: Final = 0.20
"""Accepted deviation from the quota, as a share. Rates at a Kafka broker vary by this share over half a
minute (docs/reference/quotas.md).
"""


@dataclass(slots=True)
class ClientCounters:
    """Counters of one client. Only the client's thread writes them; any thread may read."""

    payload_bytes: int = 0
    """Number of payload bytes that the broker acknowledged, or that the application received."""
    throttled: int = 0
    """Number of responses with a throttle time."""
    throttle_last_ms: int = 0
    throttle_max_ms: int = 0

    def throttle(self, throttle_ms: int) -> None:
        """Count a throttle time (ms) that librdkafka reports. A 0 says that throttling has ended: only the
        latest throttle time is then set, to 0.
        """
        self.throttle_last_ms = throttle_ms
        if throttle_ms > 0:
            self.throttled += 1
            self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)


@dataclass(frozen=True, slots=True)
class ClientReading:
    """Sums of the counters of all clients of one spec, read at the time `at_s` (s, monotonic clock)."""

    at_s: float
    payload_bytes: int = 0
    throttled: int = 0
    throttle_last_ms: int = 0
    throttle_max_ms: int = 0


def read(counters: Sequence[ClientCounters], at_s: float) -> ClientReading:
    """Return the counters of several clients as one reading at the time `at_s`: sums of bytes and throttled
    responses, maximums of throttle times.
    """
    return ClientReading(
        at_s,
        sum(each.payload_bytes for each in counters),
        sum(each.throttled for each in counters),
        max(each.throttle_last_ms for each in counters),
        max(each.throttle_max_ms for each in counters),
    )


@dataclass(frozen=True, slots=True)
class Span:
    """Readings of the same clients at the beginning and at the end of a time."""

    began: ClientReading
    ended: ClientReading

    @property
    def rate(self) -> float:
        """Average byte rate (bytes/s) between the two readings; 0 before any time has passed."""
        elapsed_s = self.ended.at_s - self.began.at_s
        return (self.ended.payload_bytes - self.began.payload_bytes) / elapsed_s if elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ClientResult:
    """Rates (bytes/s, over all brokers used) of a spec's clients, before and after Weir got its quotas."""

    spec: ClientSpec
    brokers: int
    before: Span
    """Readings of the clients from before Weir got its quotas."""
    after: Span | None = None
    """Readings of the clients since Weir got its quotas; None before that."""

    @property
    def now(self) -> ClientReading:
        return (self.after or self.before).ended

    @property
    def quota(self) -> int | None:
        """Quota (bytes/s) summed over all brokers used; None without a quota."""
        return None if self.spec.quota is None else self.spec.quota * self.brokers

    @property
    def target(self) -> int:
        """Byte rate (bytes/s) that the clients should have: their quota, or without a quota their demand."""
        return self.quota or self.spec.demand

    @property
    def rate(self) -> float:
        """Average byte rate (bytes/s) under the quotas; without them as long as there are no quotas."""
        return (self.after or self.before).rate

    @property
    def deviation(self) -> float:
        """Relative deviation of the rate from the target: 0.1 is 10 % above the target."""
        return self.rate / self.target - 1

    @property
    def failure(self) -> str:
        """Reason why the rate is wrong, such as `above quota`; "" if the rate is right."""
        limited = self.quota is not None
        if self.before.ended.throttled or (not limited and self.now.throttled):
            return "throttled without a quota"
        if self.quota is not None and self.before.rate <= self.quota * (1 + TOLERANCE):
            return "not above its quota before"
        if limited and not self.now.throttled:
            return "never throttled"
        if abs(self.deviation) <= TOLERANCE:
            return ""
        if limited:
            return "above quota" if self.deviation > 0 else "below quota"
        return "slowed down" if self.deviation < 0 else "faster than meant"


def used_up(spec: ClientSpec, reading: ClientReading) -> bool:
    """Return True if the clients have used up the initial burst: they were throttled, or have no quota."""
    return spec.quota is None or reading.throttled > 0
