"""A record's schema in Spark's JSON form, derived from its type without Spark."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, object]
"""A Spark schema as a JSON object, which Spark's `StructType.fromJson` takes."""

_NAMES: Final = {int: "long", float: "double", str: "string", bool: "boolean"}


def schema(record: type[msgspec.Struct]) -> Schema:
    """Return the Spark schema of a record type. Every field is nullable, because JSON omits default values.

    >>> schema(type("R", (msgspec.Struct,), {"__annotations__": {"n": int}}))["fields"]
    [{'name': 'n', 'type': 'long', 'nullable': True, 'metadata': {}}]
    """
    fields = [
        {"name": field.name, "type": _type(field.type), "nullable": True, "metadata": {}}
        for field in msgspec.structs.fields(record)
    ]
    return {"type": "struct", "fields": fields}


def _type(kind: object) -> str | Schema:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return schema(kind)
    if isinstance(kind, type) and kind in _NAMES:
        return _NAMES[kind]
    raise TypeError(f"no Spark type is known for {kind!r}: add it to usage/schema.py")
