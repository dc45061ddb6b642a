"""Messages as values: one class per message, the same for all its versions.

The classes are built from the schemas at their first use; `protocol/messages.py` gives them their names and
`protocol/messages.pyi` their types. A field that a version lacks holds its default. Classes are keyword-only
msgspec structs, compared by value; the structs inside a message are classes inside its class.
"""

from __future__ import annotations

import uuid
from functools import cache
from types import GenericAlias
from typing import TYPE_CHECKING, Final, cast

import msgspec

from weir.protocol import schema
from weir.protocol.errors import UnknownVersionError

if TYPE_CHECKING:
    from weir.protocol.schema import Field, MessageSchema

ZERO_UUID: Final = uuid.UUID(int=0)

PYTHON_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), int),
    "bool": bool,
    "float64": float,
    "uuid": uuid.UUID,
    "string": str,
    "bytes": bytes,
    "records": bytes,
}
"""Name of a primitive type → Python type; `records` are opaque bytes."""

_ZEROS: Final[dict[type, object]] = {
    int: 0,
    bool: False,
    float: 0.0,
    uuid.UUID: ZERO_UUID,
    str: "",
    bytes: b"",
}


class Value(msgspec.Struct, kw_only=True, repr_omit_defaults=True, gc=False):
    """A message, or a struct inside one."""

    unknown_tagged_fields: tuple[tuple[int, bytes], ...] = ()
    """(Tag, bytes) of tagged fields that the schemas lack, in ascending order; encoding writes them again."""


class Message(Value, kw_only=True, repr_omit_defaults=True, gc=False):
    """A request, a response, or a header."""


@cache
def message_type(name: str) -> type[Message]:
    """Return the class of the message with this name ("MetadataResponse"). Raises KeyError if it does not
    exist.
    """
    found = schema.message(name)
    if found is None:
        raise KeyError(name)
    structs: dict[str, type[Value]] = {}
    for struct in found.structs:
        _struct(found, struct, structs)
    built = msgspec.defstruct(
        name,
        _definitions(found.fields, structs),
        bases=(Message,),
        namespace={"__doc__": f"{name}, versions {found.versions}.", **structs},
        module="weir.protocol.messages",
        kw_only=True,
        repr_omit_defaults=True,
        gc=False,  # a message has no cycles
    )
    return cast("type[Message]", built)


def schema_of(message: type[Message]) -> MessageSchema:
    """Return the schema of a message's class. Raises KeyError if the schemas lack the message."""
    found = schema.message(message.__name__)
    if found is None:
        raise KeyError(message.__name__)
    return found


def request_type(api_key: int) -> type[Message]:
    """Return the class of an API's requests. Raises UnknownVersionError if the schemas lack the API."""
    return message_type(_api(api_key).request.name)


def response_type(api_key: int) -> type[Message]:
    """Return the class of an API's responses. Raises UnknownVersionError if the schemas lack the API."""
    return message_type(_api(api_key).response.name)


def default_of(field: Field, struct: type[Value] | None) -> object:
    """Return a field's default, a new object at each call. `struct`: class of the field's struct, None for a
    primitive type.
    """
    if field.default is not msgspec.UNSET:
        return field.default
    if field.is_array:
        return []
    return _ZEROS[PYTHON_TYPES[field.type]] if struct is None else struct()


def may_be_null(field: Field) -> bool:
    """Return True if the field's type includes None."""
    return bool(field.nullable) or field.default is None


def _api(api_key: int) -> schema.Api:
    found = schema.api(api_key)
    if found is None:
        raise UnknownVersionError("not in the schemas", api=f"API {api_key}")
    return found


def _struct(message: MessageSchema, name: str, structs: dict[str, type[Value]]) -> None:
    """Add the class of a struct, and the classes of all structs within it, to `structs` (name → class)."""
    if name in structs:
        return
    fields = message.structs[name]
    for field in fields:
        if field.is_struct:
            _struct(message, field.type, structs)
    built = msgspec.defstruct(
        name,
        _definitions(fields, structs),
        bases=(Value,),
        namespace={"__qualname__": f"{message.name}.{name}", "__doc__": f"{name} in {message.name}."},
        module="weir.protocol.messages",
        kw_only=True,
        repr_omit_defaults=True,
        gc=False,  # a message has no cycles
    )
    structs[name] = cast("type[Value]", built)


def _definitions(
    fields: tuple[Field, ...], structs: dict[str, type[Value]]
) -> list[tuple[str, object, object]]:
    """Return (name, type, default) of each of these fields, in the form that msgspec.defstruct takes."""
    definitions: list[tuple[str, object, object]] = []
    for field in fields:
        struct = structs.get(field.type)
        element: type = PYTHON_TYPES[field.type] if struct is None else struct
        whole: type | GenericAlias = GenericAlias(list, (element,)) if field.is_array else element
        annotation: object = whole | None if may_be_null(field) else whole
        definitions.append((field.name, annotation, _default(field, struct)))
    return definitions


def _default(field: Field, struct: type[Value] | None) -> object:
    """Return the default of a field in the form that msgspec.defstruct takes: a value, or a factory if the
    value is mutable.
    """
    if field.default is msgspec.UNSET and (field.is_array or struct is not None):
        factory: type = list if field.is_array or struct is None else struct
        return msgspec.field(default_factory=factory)
    return default_of(field, struct)
