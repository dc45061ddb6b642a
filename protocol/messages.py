"""Kafka's requests, responses and headers as classes: `from weir.protocol.messages import MetadataResponse`.

A class is built at its first use (`protocol/values.py`); `messages.pyi` has the types for type checkers.
"""

from __future__ import annotations

from weir.protocol import schema
from weir.protocol.values import Message, Value, message_type

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
