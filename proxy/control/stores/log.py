"""What a topic store needs of a topic: a log that is read from its start and appended to.

Every call may block for seconds, and is made in a thread; one reader, or writer, is used by one thread at a
time. Failures are StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from proxy.control.stores.records import Record


class Found(NamedTuple):
    """A record of the log, which anybody may have written."""

    offset: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """What was read."""

    records: Sequence[Found]
    at_end: bool
    """The end of the log was met behind them."""


class LogReader(Protocol):
    """Reads forward."""

    def read(self, timeout_s: float) -> Batch:
        """Return what has come meanwhile, at most so much later. Raises StoreError."""

    def probe(self) -> None:
        """Ask whether the log is still there, and is the one that was read. Raises StoreError."""

    def close(self) -> None:
        """Forget it."""


class LogWriter(Protocol):
    """Appends once."""

    def send(self, records: Sequence[Record]) -> None:
        """Begin to append. Raises StoreError."""

    def wait(self, timeout_s: float) -> int | None:
        """Return the offset of the last record once all are durable, None if that takes longer. Raises
        StoreError.
        """

    def close(self) -> None:
        """Forget it; what is not durable yet may be lost."""


class Log(Protocol):
    """Where readers and writers come from."""

    def prepare(self, replication_factor: int) -> None:
        """Make it if it is missing, and see that it is fit. Raises StoreError."""

    def reader(self) -> LogReader:
        """Begin to read at the start. Raises StoreError."""

    def writer(self, *, idempotent: bool) -> LogWriter:
        """Begin to append. Raises StoreError."""
