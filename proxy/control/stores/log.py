"""The log behind a topic store: read from its start, and appended to.

Every call may block for seconds, and runs in a thread; each reader or writer is used by one thread at a time.
Failures are StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from proxy.control.stores.records import Record


class Found(NamedTuple):
    """A record of the log; any client may have written it."""

    offset: int
    key: bytes | None
    value: bytes | None
    marked: bool = False
    """True if the record has the header that a Weir gives its records."""


class Batch(NamedTuple):
    """Consecutive records of the log."""

    records: Sequence[Found]
    at_end: bool
    """True if these are the last records of the log."""


class LogReader(Protocol):
    """Reads the log from its start to its end, and on."""

    def read(self, timeout_s: float) -> Batch:
        """Return new records, waiting at most `timeout_s`. Raises StoreError."""

    def probe(self) -> None:
        """Check that the log still exists, and is the same one. Raises StoreError."""

    def close(self) -> None:
        """Close the reader."""


class LogWriter(Protocol):
    """Appends one group of records."""

    def send(self, records: Sequence[Record]) -> None:
        """Begin to append. Raises StoreError."""

    def wait(self, timeout_s: float) -> int | None:
        """Return the offset of the last record once all are durable; None after `timeout_s`. Raises
        StoreError.
        """

    def close(self) -> None:
        """Close the writer; records that are not durable yet may be lost."""


class Log(Protocol):
    """Opens readers and writers."""

    def prepare(self, replication_factor: int) -> None:
        """Create the log if it is missing, and check its settings. Raises StoreError."""

    def reader(self) -> LogReader:
        """Return a reader at the start. Raises StoreError."""

    def writer(self, *, idempotent: bool) -> LogWriter:
        """Return a writer. Raises StoreError."""
