"""Replication throttles from values that anyone may have written: values that Weir cannot use are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from weir.quotas.replication.throttles import (
    NO_THROTTLES,
    ConfigKey,
    ReplicationThrottles,
    ResourceType,
    check,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

log = structlog.get_logger("weir.replication")

SAID_MAX: Final = 1000
"""Maximum number of problems that are remembered and logged."""
SHOWN_MAX: Final = 80
"""Maximum number of characters of a value in a log line."""


class LoggedProblems:
    """Logs each problem of a source once. After `SAID_MAX` problems no more are logged."""

    def __init__(self, source: str) -> None:
        """Begin without problems. `source` is the name in log lines."""
        self._source = source
        self._said: set[Hashable] = set()

    def say(self, event: str, problem: Hashable, **details: object) -> None:
        """Log a problem as a warning, unless it was logged before."""
        if problem not in self._said and len(self._said) < SAID_MAX:
            self._said.add(problem)
            log.warning(event, source=self._source, **details)


class ThrottleParser:
    """Makes throttles of values. Equal values are not parsed again: 10,000 topics with lists of 30 replicas
    take nearly a second.
    """

    def __init__(self, problems: LoggedProblems) -> None:
        self._problems = problems
        self._values: Mapping[ConfigKey, str] = {}
        self._throttles = NO_THROTTLES

    def parse(self, values: Mapping[ConfigKey, str]) -> ReplicationThrottles:
        """Return the throttles with those of the values that have Kafka's form; report the others."""
        if values != self._values:
            try:
                self._throttles = ReplicationThrottles(values)
            except ValueError:
                self._throttles = ReplicationThrottles(self._readable(values))
            self._values = values
        return self._throttles

    def _readable(self, values: Mapping[ConfigKey, str]) -> dict[ConfigKey, str]:
        good: dict[ConfigKey, str] = {}
        for key, value in values.items():
            try:
                check(key, value)
            except ValueError as error:
                details = described(key) | {"value": shown(value), "reason": str(error)}
                self._problems.say("replication throttle skipped", (key, value), **details)
            else:
                good[key] = value
        return good


def described(key: ConfigKey) -> dict[str, str]:
    """Return the resource and the name of a configuration, as details of a log line."""
    kind = "topic" if key.resource_type is ResourceType.TOPIC else "broker"
    return {kind: key.resource_name or "<default>", "config": key.name}


def shown(value: str) -> str:
    """Return a value for a log line: its beginning, if it is long."""
    return value if len(value) <= SHOWN_MAX else f"{value[: SHOWN_MAX - 3]}..."
