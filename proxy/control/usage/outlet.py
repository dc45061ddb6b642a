"""The destination of usage records and events: the interface that files and topics share, and records as
JSON. Used on the writer's thread only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from weir.proxy.control.events.records import Event, to_json
from weir.proxy.control.usage.tally import Kind
from weir.usage import TraceRecord, UsageRecord

Record: TypeAlias = UsageRecord | TraceRecord | Event

_ENCODER: Final = msgspec.json.Encoder()


class OutletError(Exception):
    """No record can be written to the destination now; the text is one line with the reason. A later attempt
    may succeed.
    """


class Outlet(Protocol):
    """A destination of usage records: files or a topic. It counts the records that it has written in a
    `Tally`.
    """

    name: str
    """Name of the destination, for the log."""

    def open(self) -> None:
        """Prepare to write. The writer calls this again after each failure. Raises OutletError."""

    def write(self, kind: Kind, records: Sequence[Record]) -> int:
        """Write some of the records, beginning with the first, and return the number written. Return 0, after
        a short wait, if the destination can take no record now. Raises OutletError if a failure prevented the
        writing of any record.
        """

    def tend(self) -> None:
        """Do periodic work, such as finishing files. The writer's thread calls this about once a second, and
        more often under load. Raises OutletError.
        """

    def close(self, timeout_s: float) -> None:
        """Finish writing within about `timeout_s`. Never raises."""


def lines(records: Sequence[Record]) -> bytes:
    """Return the records as JSON, one object per line."""
    try:
        return _ENCODER.encode_lines(records)
    except UnicodeEncodeError:
        return _ENCODER.encode_lines([_writable(record) for record in records])


def key(record: Record) -> bytes:
    """Return the key that the record has in a topic. All records of one client have the same key."""
    if isinstance(record, Event):
        return record.key
    return f"{record.user}/{record.client_id}".encode("utf-8", "replace")


def value(record: Record) -> bytes:
    """Return the record as one JSON object."""
    if isinstance(record, Event):
        return to_json(record)
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        return _ENCODER.encode(_writable(record))


def _writable(record: Record) -> Record:
    """Return the record with question marks in place of characters that UTF-8 cannot encode: a name from a
    JSON token may contain half a surrogate pair.
    """
    if isinstance(record, Event):
        return record
    return msgspec.structs.replace(record, user=_text(record.user), client_id=_text(record.client_id))


def _text(name: str) -> str:
    return name.encode("utf-8", "replace").decode()
