"""Counters: of one worker, and their sums over all workers, which metrics read."""

from collections import Counter
from dataclasses import dataclass, field

from weir.proxy.close_reasons import CloseReason


@dataclass(slots=True)
class Counters:
    """Totals since the start: of a worker, or at the supervisor of all workers. Declare a counter here as an
    `int` or a `Counter`: `workers.counts` carries each of them to the supervisor.
    """

    sessions_opened: int = 0
    sessions_open: int = 0
    """Number of open connections; the supervisor learns it from `ConnectionsChanged`."""
    closed_at: Counter[tuple[CloseReason, int | None]] = field(default_factory=Counter)
    """Number of connections closed and refused, by reason and node id of the broker; None for the bootstrap
    listener, and for brokers whose node id is unknown.
    """
    bytes_from_clients: Counter[int | None] = field(default_factory=Counter)
    bytes_from_brokers: Counter[int | None] = field(default_factory=Counter)
    """Bytes received by connections that have ended, by node id of the broker. At the supervisor, also those
    of open connections.
    """
    unforwarded_bytes: int = 0
    """Number of bytes that clients had sent and Weir had not forwarded when it ended their connections."""
    requests: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of requests by (API key, version). Only the supervisor has it: workers count in their plans."""
    reading_stops: int = 0
    """Number of times that a worker has stopped to read from clients because of `buffered_bytes_max`. Only
    the supervisor has it, like the next counter.
    """
    log_lines_lost: int = 0
    """Number of log lines of workers that could not be written."""
    requests_not_understood: int = 0
    """Number of requests of an API or a version that the schemas lack; they were forwarded unchanged."""
    requests_unread: Counter[int] = field(default_factory=Counter)
    """Number of requests that Weir could not read, by API key; they were forwarded unchanged."""
    wrong_nodes: int = 0
    """Number of clients that Weir made bootstrap again, because they took its listener for another node
    (KIP-1242).
    """
    protected_refused: Counter[int] = field(default_factory=Counter)
    """Number of changes of Weir's own topics that Weir refused, by API key."""
    not_offered: Counter[str] = field(default_factory=Counter)
    """Number of requests in versions that only Weirs with other settings offer, by the client's names."""
    topics_unnamed: int = 0
    """Number of times that a broker gave no name for a topic id when Weir asked."""
    exempt_us: Counter[int | None] = field(default_factory=Counter)
    """Request time (µs of one thread) of requests that brokers exempt from request quotas, an estimate, by
    node id of the broker.
    """
    throttles: int = 0
    """Number of times that a client was throttled."""
    authentications_succeeded: Counter[str] = field(default_factory=Counter)
    """Number of SASL exchanges that brokers accepted, by mechanism (or "other")."""
    authentications_failed: Counter[str] = field(default_factory=Counter)
    """Number of SASL exchanges that brokers refused with a response. Exchanges that brokers ended by closing
    the connection are not counted.
    """
    names_hidden: int = 0
    """Number of SASL exchanges that brokers accepted and that did not show the client's name."""
    task_failures: Counter[str] = field(default_factory=Counter)
    """Number of failures of Weir's own tasks, by task (`proxy.control.supervisor`)."""

    @property
    def closed(self) -> Counter[CloseReason]:
        """Number of connections closed and refused, by reason."""
        found: Counter[CloseReason] = Counter()
        for (reason, _node_id), count in self.closed_at.items():
            found[reason] += count
        return found

    def note_ended(
        self, reason: CloseReason, node_id: int | None, from_client_bytes: int, from_broker_bytes: int
    ) -> None:
        """Count a connection that has ended, by close reason and broker, and the bytes that it has received
        from each side.
        """
        self.sessions_open -= 1
        self.closed_at[reason, node_id] += 1
        self.bytes_from_clients[node_id] += from_client_bytes
        self.bytes_from_brokers[node_id] += from_broker_bytes
