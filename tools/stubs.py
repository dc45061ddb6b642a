"""Write the types of `protocol/messages.py` for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.values import PYTHON_TYPES, may_be_null

if TYPE_CHECKING:
    from weir.protocol.schema import Field, MessageSchema

_HEAD: Final = """\
# Written by tools/import_schemas.py from Kafka's message schemas. Do not edit.

from uuid import UUID

from weir.protocol.values import Message as Message, Value as Value
"""


def stub(messages: list[MessageSchema]) -> str:
    """Return the text of messages.pyi."""
    return "\n".join([_HEAD, *map(_message, messages)])


def _message(message: MessageSchema) -> str:
    lines = [f"class {message.name}(Message, kw_only=True):"]
    for name, fields in message.structs.items():
        lines.append(f"    class {name}(Value, kw_only=True):")
        lines += [f"        {field.name}: {_type(message, field)} = ..." for field in fields]
    lines += [f"    {field.name}: {_type(message, field)} = ..." for field in message.fields]
    if len(lines) == 1:
        lines.append("    pass")
    return "\n".join(lines) + "\n"


def _type(message: MessageSchema, field: Field) -> str:
    element = f"{message.name}.{field.type}" if field.is_struct else PYTHON_TYPES[field.type].__name__
    whole = f"list[{element}]" if field.is_array else element
    return f"{whole} | None" if may_be_null(field) else whole
