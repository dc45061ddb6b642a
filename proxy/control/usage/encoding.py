"""Records as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from proxy.control.usage.outlet import Record

_ENCODER: Final = msgspec.json.Encoder()


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
