"""Hourly results of a replay of one budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class Hour:
    """Result of one hour of the replay. A charge counts in the hour in which it is made."""

    start_ms: int
    """Time (ms) at which the hour begins."""
    charges: int = 0
    """Number of requests simulated in this hour, including requests refused or answered without records."""
    charged: float = 0.0
    """Number of units (bytes, percent-seconds or partitions) charged in this hour."""
    violations: int = 0
    """Number of requests that were answered with a throttle time, or refused."""
    throttle_ms: int = 0
    """Sum of the throttle times (ms) of the requests that count as violations."""
    longest_ms: int = 0
    """Longest throttle time (ms) of these."""
    throttled_ms: int = 0
    """Time (ms) in this hour during which at least one connection waited; overlapping waits count once."""
    first_ms: int | None = None
    """Time (ms) of the first violation in this hour (a request that was throttled or refused); None without
    violations.
    """
    last_ms: int | None = None
    """Time (ms) of the last violation in this hour (a request that was throttled or refused); None without
    violations.
    """
    given_up: int = 0
    """Number of requests that their clients gave up, because the wait was longer than the client's patience.
    """


class Hours:
    """Sums of charges and throttle times by hour. The caller must call the methods in the order of time."""

    __slots__ = ("_hour", "_hours", "_waiting_until_ms", "until_ms")

    def __init__(self) -> None:
        self._hours: dict[int, Hour] = {}
        self._hour = Hour(0)
        self.until_ms = 0
        """Time (ms) at which the current hour ends."""
        self._waiting_until_ms = 0

    def count(self, value: float, now_ms: int, requests: int = 1) -> None:
        """Count `requests` requests, with a total charge of `value` units, in the hour of `now_ms`."""
        hour = self._hour if now_ms < self.until_ms else self._turn(now_ms)
        hour.charges += requests
        hour.charged += value

    def violated(self, wait_ms: int, now_ms: int, from_ms: int, requests: int = 1) -> None:
        """Count `requests` violations at `now_ms`: requests that are told to wait for `wait_ms` each, from
        `from_ms` on.
        """
        hour = self._hour if now_ms < self.until_ms else self._turn(now_ms)
        hour.violations += requests
        hour.throttle_ms += wait_ms * requests
        if wait_ms > hour.longest_ms:
            hour.longest_ms = wait_ms
        hour.last_ms = now_ms
        if hour.first_ms is None:
            hour.first_ms = now_ms
        self.cover(from_ms, from_ms + wait_ms)

    def cover(self, start_ms: int, stop_ms: int) -> None:
        """Count the time from `start_ms` to `stop_ms` as throttled, except the part that counts already."""
        start_ms = max(start_ms, self._waiting_until_ms)
        if stop_ms > start_ms:
            self._waiting_until_ms = stop_ms
            self._spread(start_ms, stop_ms)

    def gave_up(self, now_ms: int) -> None:
        """Count one request that its client gave up at `now_ms`, because the wait was too long."""
        (self._hour if now_ms < self.until_ms else self._turn(now_ms)).given_up += 1

    def _spread(self, start_ms: int, stop_ms: int) -> None:
        while start_ms < stop_ms:
            hour = self._at(start_ms)
            end_ms = min(stop_ms, hour.start_ms + HOUR_MS)
            hour.throttled_ms += end_ms - start_ms
            start_ms = end_ms

    def _turn(self, now_ms: int) -> Hour:
        self._hour = hour = self._at(now_ms)
        self.until_ms = hour.start_ms + HOUR_MS
        return hour

    def _at(self, when_ms: int) -> Hour:
        start_ms = when_ms - when_ms % HOUR_MS
        hour = self._hours.get(start_ms)
        if hour is None:
            hour = self._hours[start_ms] = Hour(start_ms)
        return hour

    def take(self, *, over: bool = False) -> list[Hour]:
        """Return the results of the hours before the current one, and remove them from this object. `over`:
        True at the end of the replay, to return the current hour too.
        """
        past = [start for start in self._hours if over or start < self._hour.start_ms]
        return [self._hours.pop(start) for start in sorted(past)]
