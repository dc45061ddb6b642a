"""The smallest message of each API and version."""

from __future__ import annotations

from typing import Any, Final

from weir.protocol.codec import codec
from weir.protocol.schema import Layout
from weir.protocol.values import ZERO_UUID, Message

ZEROS: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO_UUID,
}


def minimal(message: type[Message], version: int) -> bytes:
    subject = codec(message, version)
    return subject.encode(least(message, message, subject.layout))


def least(message: type[Message], built: type[Any], layout: Layout) -> Any:
    """Return a value with defaults, but for fields whose default this version does not allow."""
    fields = {}
    for slot in layout.fields:
        if slot.struct is not None and not slot.is_array and not slot.nullable:
            fields[slot.name] = least(message, getattr(message, slot.type), slot.struct)
        elif not slot.is_array and not slot.nullable and slot.type in ("string", "bytes", "records"):
            fields[slot.name] = ZEROS[slot.type]
    return built(**fields)
