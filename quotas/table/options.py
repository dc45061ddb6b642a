"""Options of a quota entry, which Kafka does not have: the pacing of a byte rate, the scope of a budget,
and the end of the entry.
"""

from __future__ import annotations

from datetime import datetime  # a field's type: mypyc wants it at run time
from enum import Enum
from typing import Final, NamedTuple

from weir.quotas.table.times import read_time, written_time

DEFAULT_PACING: Final = "default"
"""Text for the configured pacing."""
NEVER: Final = "never"
"""Text for the end of an entry without end."""


class Pacing(Enum):
    """Kind of limiter of a byte rate."""

    KAFKA = "kafka"
    """Kafka's sampled rate: bursts of ten seconds' worth of bytes, and long throttle times after them."""
    SMOOTH = "smooth"
    """Even pacing: short bursts, and short throttle times (`quotas.limiters.smooth`)."""


class Scope(Enum):
    """Brokers that share one budget of bytes or of request time: a single broker, or all brokers of the
    cluster.
    """

    BROKER = "broker"
    """One budget per broker, as in Kafka."""
    CLUSTER = "cluster"
    """One budget for all brokers of this Weir."""


class Options(NamedTuple):
    """Options of one quota entry that Kafka does not have."""

    pacing: Pacing | None = None
    """Kind of limiter of a byte rate (Kafka's or smooth); None for the configured default."""
    scope: Scope = Scope.BROKER
    until: datetime | None = None
    """Time (UTC) from which on the entry is as if deleted; None for no end."""

    def replaced(self, pacing: str | None, scope: str | None, until: str | None) -> Options:
        """Return options with another pacing (`kafka`, `smooth`, or `default`: the configured one), scope
        (`broker`, `cluster`) and end (a time, or `never`); None keeps the present one. Raises ValueError.
        """
        its = self.pacing if pacing is None else None if pacing == DEFAULT_PACING else Pacing(pacing)
        end = self.until if until is None else None if until == NEVER else read_time(until)
        return Options(its, self.scope if scope is None else Scope(scope), end)

    def __str__(self) -> str:
        """Return the options that the entry sets, as text such as `smooth, cluster`; the default scope is
        left out.
        """
        scope = "" if self.scope is Scope.BROKER else self.scope.value
        until = "" if self.until is None else f"until {written_time(self.until)}"
        return ", ".join(filter(None, ("" if self.pacing is None else self.pacing.value, scope, until)))


PLAIN: Final = Options()
"""Options of an entry that sets none: byte rates are paced as configured, and each broker has a budget of its
own.
"""
