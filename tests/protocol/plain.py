"""Values as other libraries' classes write and read them."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.protocol import kio_side
from weir.protocol.values import Message, schema_of


def plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [plain(element) for element in value]
    return value


def kio_bytes(value: Message, version: int) -> bytes:
    """kio's bytes of a message, which must be one that kio knows in this version."""
    schema = schema_of(type(value))
    written = kio_side.encode((schema.api_key, schema.kind, version, plain(value)))
    assert isinstance(written, bytes), written
    return written


def read_by_kafka_python(kind: Any, body: bytes, version: int) -> dict[str, Any]:
    """The fields that a class of kafka-python finds; within tagged structs it reads no unknown tags."""
    fields: dict[str, Any] = kind.decode(body, version=version).to_dict(json=False)
    return fields
