"""The destination of records: the common part of files and topics, and records as JSON. Used on the writer's
thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from proxy.control.usage.tally import Kind
from usage import TraceRecord, UsageRecord

Record: TypeAlias = UsageRecord | TraceRecord

_ENCODER: Final = msgspec.json.Encoder()


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


def lines(records: Sequence[Record]) -> bytes:
    """Return one JSON object per line."""
    try:
        return _ENCODER.encode_lines(records)
    except UnicodeEncodeError:
        return _ENCODER.encode_lines([_writable(record) for record in records])


def key(record: Record) -> bytes:
    """Return the key that all records of a client share."""
    return f"{record.user}/{record.client_id}".encode("utf-8", "replace")


def value(record: Record) -> bytes:
    """Return one JSON object."""
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        return _ENCODER.encode(_writable(record))


def _writable(record: Record) -> Record:
    """Replace invalid text by question marks: JSON in a token may contain half a surrogate pair."""
    return msgspec.structs.replace(record, user=_text(record.user), client_id=_text(record.client_id))


def _text(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
