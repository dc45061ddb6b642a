"""A record's schema in Spark's JSON form, derived from its type without Spark."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, object]
"""The argument of `StructType.fromJson`."""

_NAMES: Final = {int: "long", float: "double", str: "string", bool: "boolean"}


def schema(record: type[msgspec.Struct]) -> Schema:
    """Return a record type's schema; every field is nullable, because JSON omits default values.

    >>> schema(type("R", (msgspec.Struct,), {"__annotations__": {"n": int}}))["fields"]
    [{'name': 'n', 'type': 'long', 'nullable': True, 'metadata': {}}]
    """
    fields = [
        {"name": field.name, "type": _type(field.type), "nullable": True, "metadata": {}}
        for field in msgspec.structs.fields(record)
    ]
    return {"type": "struct", "fields": fields}


def required(record: type[msgspec.Struct]) -> list[str]:
    """Return the names of the fields that every record has."""
    return [field.name for field in msgspec.structs.fields(record) if field.required]


def defaults(record: type[msgspec.Struct]) -> dict[str, object]:
    """Return the meaning of omitted fields, by name; for a field that is a struct, a dict of the same kind.

    >>> class R(msgspec.Struct):
    ...     a: int
    ...     b: int = 3
    >>> defaults(R)
    {'b': 3}
    """
    left_out = {field.name: field.default for field in msgspec.structs.fields(record) if not field.required}
    return {
        name: msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        for name, value in left_out.items()
    }


def _type(kind: object) -> str | Schema:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return schema(kind)
    if isinstance(kind, type) and kind in _NAMES:
        return _NAMES[kind]
    raise TypeError(f"no Spark type is known for {kind!r}: add it to usage/schema.py")
