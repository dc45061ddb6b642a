"""Every request, response and header of Kafka as a class: `from protocol.messages import MetadataResponse`.

A class is made at its first use (see `protocol/values.py`); `messages.pyi` has the types for type checkers.
"""

# mypyc: skip, because the classes are made at their first use, and messages.pyi has their types.
from __future__ import annotations

from protocol import schema
from protocol.values import Message, Value, message_type

__all__ = ["Message", "Value"]  # and every message


def __getattr__(name: str) -> type[Message]:
    try:
        found = message_type(name)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "RequestHeader", "ResponseHeader", *schema.message_names()]
