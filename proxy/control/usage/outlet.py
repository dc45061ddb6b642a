"""Where records go: what files and topics have in common. All of it is called on the writer's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from proxy.control.usage.tally import Kind
from usage import TraceRecord, UsageRecord

Record: TypeAlias = UsageRecord | TraceRecord


class OutletError(Exception):
    """Nothing can be written now; one line says why. It may be tried again."""


class Outlet(Protocol):
    """Takes records, and counts in its `Tally` which of them are written."""

    name: str
    """Where that is, for the log."""

    def open(self) -> None:
        """Get ready; again after each failure. Raises OutletError."""

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        """Take some of the records, from the first on, and return how many; it may be none, after a moment.
        Raises OutletError if none was taken.
        """

    def tend(self) -> None:
        """Do what time has come for; called about once a second, and while there is much to write more often.
        Raises OutletError.
        """

    def close(self, timeout_s: float) -> None:
        """Finish what is written, within about that time; never raises."""
