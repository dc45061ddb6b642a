"""Health: the conditions that need an operator, for events, `/api/status` and metrics: a broker is down, a
store fails, Weir has a problem.

A condition comes from an outage, whose beginning and end the log tells, or from a source, which is asked.

A condition is over once it has been absent for `QUIET_MS`: a broker that answers every other connection is
down, and causes one event, not hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import structlog

from weir.proxy.control.events.records import (
    BrokerDown,
    BrokerUp,
    Event,
    ProblemBegun,
    ProblemOver,
    Publish,
    StoreFailing,
    StoreRecovered,
)
from weir.proxy.outage import Outage

log = structlog.get_logger("weir")

PERIOD_S: Final = 1.0
"""Time (s) between two checks of all conditions."""
QUIET_MS: Final = 5000
"""Time (ms) for which a condition must be absent to be over."""


class Condition(NamedTuple):
    """A condition that is present now."""

    key: tuple[str, object]
    """Kind and name of the condition: at most one condition has this key at a time."""
    begins: Event
    over: Callable[[int], Event]
    """Function that takes the time (ms) for which the condition lasted, and returns the event of its end."""
    what: str
    """Description of the condition, as one sentence."""
    remedy: str
    """Advice for the operator."""
    logged: bool = False
    """True if the beginning is to be logged here, because no other code logs it."""
    since_s: float | None = None
    """Unix time (s) at which the condition began; None if only Weir's periodic look has found it."""


Source: TypeAlias = Callable[[], Iterable[Condition]]
"""Function that returns the conditions that are present now."""

Describe: TypeAlias = Callable[[Outage], Condition]
"""Function that returns the condition of an outage."""


@dataclass(slots=True)
class _Present:
    condition: Condition
    began_ms: int
    seen_ms: int


class Health:
    """Knows the present conditions, and publishes the beginning and the end of each."""

    def __init__(self, publish: Publish) -> None:
        """Begin without conditions, outages and sources."""
        self.sources: list[Source] = []
        self._outages: list[tuple[Outage, Describe]] = []
        self._publish = publish
        self._present: dict[tuple[str, object], _Present] = {}

    def watch(self, outage: Outage, describe: Describe) -> None:
        """Make an outage a condition as long as it lasts."""
        self._outages.append((outage, describe))

    def look(self, now_ms: int) -> list[tuple[Condition, int]]:
        """Look at all outages and sources, and publish the differences from the previous call. Return the
        present conditions, each with the time (ms) since it was first found.
        """
        found = [describe(outage) for outage, describe in self._outages if outage.failing]
        found += [condition for source in self.sources for condition in source()]
        for condition in found:
            present = self._present.get(condition.key)
            if present is None:
                self._present[condition.key] = _Present(condition, now_ms, now_ms)
                self._publish(condition.begins)
                if condition.logged:
                    log.warning("problem", what=condition.what, remedy=condition.remedy)
            else:
                present.seen_ms = now_ms
        self._forget(now_ms)
        return [(condition, now_ms - self._present[condition.key].began_ms) for condition in found]

    def names(self) -> list[str]:
        """Return the names of the conditions that are present, or were less than `QUIET_MS` ago."""
        return [" ".join(map(str, key[key[0] == "problem" :])) for key in self._present]

    def _forget(self, now_ms: int) -> None:
        """Publish the end of conditions that were absent for `QUIET_MS`."""
        for key, present in list(self._present.items()):
            if now_ms - present.seen_ms >= QUIET_MS:
                del self._present[key]
                self._publish(present.condition.over(present.seen_ms - present.began_ms))


def broker_down(node_id: int, reason: str | None, since_s: float | None = None) -> Condition:
    """Return the condition of a broker that is down."""
    return Condition(
        ("broker", node_id),
        BrokerDown(node_id=node_id, reason=reason),
        lambda lasted_ms: BrokerUp(node_id=node_id, lasted_ms=lasted_ms),
        f"Broker {node_id} is down: {reason or 'the reason is not known'}.",
        "Start the broker, or check the network between Weir and the broker.",
        since_s=since_s,
    )


def store_failing(store: str, reason: str | None, since_s: float | None = None) -> Condition:
    """Return the condition of a quota store that cannot be read."""
    return Condition(
        ("store", store),
        StoreFailing(store=store, reason=reason),
        lambda lasted_ms: StoreRecovered(store=store, lasted_ms=lasted_ms),
        f"The quota store ({store}) cannot be read: {reason or 'the reason is not known'}.",
        "Repair the store. The last known quotas stay in force.",
        since_s=since_s,
    )


def problem(name: str, what: str, remedy: str, *, logged: bool = False) -> Condition:
    """Return the condition of a problem. `name` must be the same as long as the problem lasts. With `logged`,
    its beginning is logged; other problems have lines of their own.
    """
    return Condition(
        ("problem", name),
        ProblemBegun(name=name, what=what, remedy=remedy),
        lambda lasted_ms: ProblemOver(name=name, what=what, lasted_ms=lasted_ms),
        what,
        remedy,
        logged=logged,
    )
