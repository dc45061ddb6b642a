"""The destination of records: the common part of files and topics. Used on the writer's thread only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from proxy.control.usage.tally import Kind
from usage import TraceRecord, UsageRecord

Record: TypeAlias = UsageRecord | TraceRecord


class OutletError(Exception):
    """Nothing can be written now, for the reason in one line. A retry may succeed."""


class Outlet(Protocol):
    """Takes records, and counts written ones in its `Tally`."""

    name: str
    """The destination, for the log."""

    def open(self) -> None:
        """Prepare; called again after each failure. Raises OutletError."""

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        """Take some of the records, from the first on; return their number, which may be 0 after a moment.

        Raises OutletError if none was taken.
        """

    def tend(self) -> None:
        """Do periodic work; called about once a second, and more often under load.

        Raises OutletError.
        """

    def close(self, timeout_s: float) -> None:
        """Finish writing, within about this time; never raises."""
