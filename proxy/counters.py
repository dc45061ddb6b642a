"""What the process has done so far: plain integers, read when somebody asks."""

from collections import Counter
from dataclasses import dataclass, field

from proxy.reasons import CloseReason


@dataclass(slots=True)
class Counters:
    """Totals since start. One instance per process; only the thread of the reactor writes to it."""

    sessions_opened: int = 0
    sessions_open: int = 0
    closed: Counter[CloseReason] = field(default_factory=Counter)
    """Sessions and refused connections, by reason."""
    requests_not_understood: int = 0
    """Requests of an API or version that Weir has no schema for: passed through untouched."""
    throttles: int = 0
    """How often a client was made to wait."""
