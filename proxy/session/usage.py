"""What clients use at a broker, counted as it happens and taken away once an interval.

Nothing is counted unless somebody wants it (`Session.usage`). Sans-IO: whoever writes the records drains the
books, and tells them the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usage.records import TraceRecord, UsageRecord


class UsageBook:
    """What the clients of one broker have used since it was drained last."""

    def __init__(self, broker: int) -> None:
        self.broker = broker


class UsageBooks:
    """The books of all brokers behind one Weir."""

    def __init__(
        self, *, entities_max: int = 10_000, trace_share: float = 0.0, traces_max: int = 100_000
    ) -> None:
        """At most so many entities per broker and drain have records of their own, the others share one
        (`<others>`). Of so large a share of the entities every request is traced, at most so many per drain.
        """
        self.entities_max = entities_max
        self.trace_share = trace_share
        self.traces_max = traces_max
        self.traces_dropped = 0
        """Traced requests beyond `traces_max`."""
        self._books: dict[int, UsageBook] = {}

    def of(self, node_id: int | None) -> UsageBook:
        """The book of a broker, the same each time."""
        broker = -1 if node_id is None else node_id
        return self._books.setdefault(broker, UsageBook(broker))

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """Take what was used since the last drain, record by record; the interval that ends now began at
        `time_ms` (since 1970). What is used while this goes on may be in it, or in the next one.
        """
        del time_ms, interval_ms, instance
        return iter(())

    def take_traces(self, offset_ms: int, instance: str) -> list[TraceRecord]:
        """Take the requests traced since the last time; `offset_ms` turns the sessions' time into that since
        1970.
        """
        del offset_ms, instance
        return []
