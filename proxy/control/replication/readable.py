"""Replication throttles from values that anyone may have written: values that Weir cannot use are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import structlog

from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, check

if TYPE_CHECKING:
    from collections.abc import Hashable

log = structlog.get_logger("weir.replication")

SAID_MAX: Final = 1000
"""Maximum number of problems that are remembered and logged."""
SHOWN_MAX: Final = 80
"""Maximum number of characters of a value in a log line."""


class Problems:
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


def readable(values: Mapping[ConfigKey, str], problems: Problems) -> ReplicationThrottles:
    """Return the throttles with those of the values that have Kafka's form; report the others."""
    good: dict[ConfigKey, str] = {}
    for key, value in values.items():
        try:
            check(key, value)
        except ValueError as error:
            problems.say(
                "replication throttle skipped",
                (key, value),
                **described(key),
                value=shown(value),
                reason=str(error),
            )
        else:
            good[key] = value
    return ReplicationThrottles(good)


def described(key: ConfigKey) -> dict[str, str]:
    """Return the resource and the name of a configuration, as details of a log line."""
    kind = "topic" if key.resource_type is ResourceType.TOPIC else "broker"
    return {kind: key.resource_name or "<default>", "config": key.name}


def shown(value: str) -> str:
    """Return a value for a log line: its beginning, if it is long."""
    return value if len(value) <= SHOWN_MAX else f"{value[: SHOWN_MAX - 3]}..."
