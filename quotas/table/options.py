"""Options of a quota entry, which Kafka does not have: the pacing of a byte rate, and the scope of a
budget.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

DEFAULT_PACING: Final = "default"
"""Text for the configured pacing."""


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
    """Options of one quota entry that Kafka does not have: the pacing of a byte rate, and the scope of a
    budget.
    """

    pacing: Pacing | None = None
    """Kind of limiter of a byte rate (Kafka's or smooth); None for the configured default."""
    scope: Scope = Scope.BROKER

    def replaced(self, pacing: str | None, scope: str | None) -> Options:
        """Return options with another pacing (`kafka`, `smooth`, or `default`: the configured one) and scope
        (`broker`, `cluster`); None keeps the present one.
        """
        its = self.pacing if pacing is None else None if pacing == DEFAULT_PACING else Pacing(pacing)
        return self._replace(pacing=its, scope=self.scope if scope is None else Scope(scope))

    def __str__(self) -> str:
        """Return the options that the entry sets, as text such as `smooth, cluster`; the default scope is
        left out.
        """
        scope = "" if self.scope is Scope.BROKER else self.scope.value
        return ", ".join(filter(None, ("" if self.pacing is None else self.pacing.value, scope)))


PLAIN: Final = Options()
"""Options of an entry that sets none: byte rates are paced as configured, and each broker has a budget of its
own.
"""
