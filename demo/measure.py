"""Measuring: what clients count, the rate between two readings, and whether it is the quota."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from demo.client_specs import ClientSpec

TOLERANCE: Final = 0.20
"""Kafka's own algorithm swings that much over half a minute, measured on a broker too (docs/quotas.md)."""


@dataclass(slots=True)
class ClientCounters:
    """What one client has seen. Written by that client's thread only, read by any."""

    payload_bytes: int = 0
    """Of messages that the broker has acknowledged, or that the application has been handed."""
    throttled: int = 0
    """How many responses had a throttle time."""
    throttle_last_ms: int = 0
    throttle_max_ms: int = 0

    def throttle(self, throttle_ms: int) -> None:
        """Take a throttle time from a response; 0 when librdkafka says that throttling has ended."""
        self.throttle_last_ms = throttle_ms
        if throttle_ms > 0:
            self.throttled += 1
            self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)


@dataclass(frozen=True, slots=True)
class Reading:
    """An spec's counters, at one time, together."""

    at_s: float
    payload_bytes: int = 0
    throttled: int = 0
    throttle_last_ms: int = 0
    throttle_max_ms: int = 0


def read(counters: Sequence[ClientCounters], at_s: float) -> Reading:
    """Add up the bytes and counts of an spec's clients; of throttle times, take the longest."""
    return Reading(
        at_s,
        sum(each.payload_bytes for each in counters),
        sum(each.throttled for each in counters),
        max(each.throttle_last_ms for each in counters),
        max(each.throttle_max_ms for each in counters),
    )


@dataclass(frozen=True, slots=True)
class Result:
    """What an spec did from `began` to `now`; rates in bytes/s, over all brokers that it uses."""

    spec: ClientSpec
    brokers: int
    began: Reading
    now: Reading

    @property
    def quota(self) -> int | None:
        """Its quota at all its brokers together."""
        return None if self.spec.quota is None else self.spec.quota * self.brokers

    @property
    def target(self) -> int:
        """What it should reach: its quota, or what it sends by itself."""
        return self.quota or self.spec.pace or 0

    @property
    def rate(self) -> float:
        """0 before any time has passed."""
        elapsed_s = self.now.at_s - self.began.at_s
        return (self.now.payload_bytes - self.began.payload_bytes) / elapsed_s if elapsed_s > 0 else 0.0

    @property
    def deviation(self) -> float:
        """How far the rate is from the target: 0.1 is 10 % above it."""
        return self.rate / self.target - 1

    @property
    def failure(self) -> str:
        """Why it does not pass; empty if it does."""
        limited = self.quota is not None
        if limited and not self.now.throttled:
            return "never throttled"
        if not limited and self.now.throttled:
            return "throttled without a quota"
        if abs(self.deviation) <= TOLERANCE:
            return ""
        if limited:
            return "above quota" if self.deviation > 0 else "below quota"
        return "slowed down" if self.deviation < 0 else "faster than meant"


def used_up(spec: ClientSpec, reading: Reading) -> bool:
    """Whether the spec's burst allowance is gone: it has been throttled, or has no quota at all."""
    return spec.quota is None or reading.throttled > 0
