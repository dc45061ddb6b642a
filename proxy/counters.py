"""What the process has done so far: plain integers, read when somebody asks."""

from collections import Counter
from dataclasses import dataclass, field

from proxy.close_reasons import CloseReason


@dataclass(slots=True)
class Counters:
    """Totals since start. One instance per process; only the thread of the reactor writes to it."""

    sessions_opened: int = 0
    sessions_open: int = 0
    closed: Counter[CloseReason] = field(default_factory=Counter)
    """Sessions and refused connections, by reason."""
    bytes_from_clients: int = 0
    bytes_from_brokers: int = 0
    """Received by sessions that have ended; `Server.received_bytes` adds those of open ones."""
    requests_not_understood: int = 0
    """Requests of an API or version that Weir has no schema for: passed through untouched."""
    requests_unread: Counter[int] = field(default_factory=Counter)
    """Requests that Weir could not read for a purpose of its own, by API key: passed through untouched."""
    throttles: int = 0
    """How often a client was made to wait."""
    authentications_succeeded: Counter[str] = field(default_factory=Counter)
    """SASL exchanges that brokers accepted, by mechanism (or "other")."""
    authentications_failed: Counter[str] = field(default_factory=Counter)
    """Those that brokers refused in an answer; one that only closes the connection is not counted."""
    names_hidden: int = 0
    """Accepted exchanges in which no name could be seen."""
    task_failures: Counter[str] = field(default_factory=Counter)
    """How often a task of Weir's own failed, by task (`proxy.control.supervisor`)."""

    def note_ended(self, reason: CloseReason, from_client_bytes: int, from_broker_bytes: int) -> None:
        """A session has ended, and had received this much."""
        self.sessions_open -= 1
        self.closed[reason] += 1
        self.bytes_from_clients += from_client_bytes
        self.bytes_from_brokers += from_broker_bytes
