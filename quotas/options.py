"""Options of a quota entry: how its rate is held, and how far a budget reaches. They are Weir's own."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Pacing(Enum):
    """How a byte rate is held."""

    KAFKA = "kafka"
    """By Kafka's samples: bursts of ten seconds' worth, and long waits after them."""
    SMOOTH = "smooth"
    """Evenly: short bursts, and short waits (`quotas.limiters.smooth`)."""


class Scope(Enum):
    """How far a budget of bytes or of request time reaches."""

    BROKER = "broker"
    """A budget for each broker, as in Kafka."""
    CLUSTER = "cluster"
    """One budget for all brokers of this Weir."""


class Options(NamedTuple):
    """What an entry says beside its values."""

    pacing: Pacing | None = None
    """None: the configured one."""
    scope: Scope = Scope.BROKER

    def __str__(self) -> str:
        """Such as `smooth, cluster`; "" if nothing is said."""
        scope = "" if self.scope is Scope.BROKER else self.scope.value
        return ", ".join(filter(None, ("" if self.pacing is None else self.pacing.value, scope)))


PLAIN: Final = Options()
"""Those of an entry that says nothing of them."""
