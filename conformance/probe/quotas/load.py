"""A client's load: when to send next. Without a clock and sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec


class MeasuredAnswer(msgspec.Struct, frozen=True, gc=False):
    """A response."""

    at_s: float
    """Time (s) since the load began."""
    units: float
    """Number of bytes, requests or partitions that the quota counts; 0 for a refused request."""
    throttle_ms: int = 0
    connection: int = 0
    refused: bool = False
    """True for error 89 (THROTTLING_QUOTA_EXCEEDED)."""


class GreedyLoad(msgspec.Struct, frozen=True):
    """A load under one quota."""

    quota: float
    """Units/s."""
    even_s: float
    """Time (s) during which the load keeps to its quota by itself, so that a sampled window fills evenly."""
    settled_s: float
    """Time (s) from which figures count."""
    lasts_s: float
    connections: int = 1


SHORT_S: Final = 1e-6
"""Time (s) that is too short to wait for: a clock may not show it."""
Ask = Callable[[], MeasuredAnswer]
"""Function that sends a request, waits for its response, and returns it; `at_s` is a time of the clock."""


class Driver:
    """Drives one connection of a load."""

    def __init__(self, load: GreedyLoad, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """`clock` returns a time (s), `sleep` waits for a time (s)."""
        self._load = load
        self._clock = clock
        self._sleep = sleep
        self.late_s = 0.0
        """Longest time (s) by which this machine ended a sleep too late."""

    def drive(self, ask: Ask) -> list[MeasuredAnswer]:
        """Ask until the load ends. Return the responses."""
        load, begun_s = self._load, self._clock()
        passed: list[MeasuredAnswer] = []
        sent = 0.0
        while (now_s := self._clock() - begun_s) < load.lasts_s:
            due_s = sent / (load.quota / load.connections) if now_s < load.even_s else 0.0
            if due_s - now_s > SHORT_S:
                self._wait(due_s - now_s)
                continue
            answer = ask()
            sent += answer.units
            passed.append(msgspec.structs.replace(answer, at_s=answer.at_s - begun_s))
        return passed

    def _wait(self, wait_s: float) -> None:
        before_s = self._clock()
        self._sleep(wait_s)
        self.late_s = max(self.late_s, self._clock() - before_s - wait_s)
