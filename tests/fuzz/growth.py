"""Inputs that grow: messages of one array as wide as can be, and endless bytes of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.fuzz.target import Grow
from tests.protocol.generate import sample
from weir.protocol.codec import codec
from weir.protocol.schema import Layout
from weir.protocol.values import Message

FILLERS: Final = {
    "zeros": b"\0",
    "ones": b"\1",
    "twos": b"\2",
    "greatest": b"\x7f",
    "continued varints": b"\x80",
    "continued varints, ended": b"\xff\xff\xff\xff\x07",
    "negative": b"\xff",
    "greatest counts": b"\x7f\xff\xff\xff",
    "small counts": b"\0\0\0\1",
    "empty tags": b"\x81\x01\0",
}


def fillers(prefix: bytes = b"") -> dict[str, Grow]:
    return {name: _filler(prefix, filler) for name, filler in FILLERS.items()}


def _filler(prefix: bytes, filler: bytes) -> Grow:
    return lambda count: prefix + filler * (4 * count // len(filler))


def wide(message: type[Message], version: int, prefix: bytes = b"") -> Mapping[str, Grow]:
    """Return encoded messages in which one array has many elements, for each array of the layout."""
    subject = codec(message, version)
    return {
        f"{message.__name__} v{version} {'.'.join(path)}": _encoded(message, version, path, prefix)
        for path in _arrays(subject.layout)
    } | (
        {f"{message.__name__} v{version} tags": _tagged(message, version, prefix)}
        if subject.layout.flexible
        else {}
    )


def _arrays(layout: Layout) -> Iterator[tuple[str, ...]]:
    for slot in (*layout.fields, *layout.tagged):
        if slot.is_array:
            yield (slot.name,)
        if slot.struct is not None:
            yield from ((slot.name, *path) for path in _arrays(slot.struct))


def _encoded(message: type[Message], version: int, path: tuple[str, ...], prefix: bytes) -> Grow:
    def grow(count: int) -> bytes:
        value: Any = sample(message, version)
        inner = value
        for name in path[:-1]:
            inner = getattr(inner, name)
            inner = inner[0] if isinstance(inner, list) else inner
        setattr(inner, path[-1], [_least(each) for each in getattr(inner, path[-1])] * count)
        return prefix + codec(message, version).encode(value)

    return grow


def _least(element: Any) -> Any:
    """Return an element that takes as few bytes as its type can."""
    if isinstance(element, str):
        return ""
    if isinstance(element, bytes):
        return b""
    if isinstance(element, int) or not hasattr(element, "__struct_fields__"):
        return element
    least = type(element)()
    for name in element.__struct_fields__:
        if name in ("records", "unaligned_records") and getattr(least, name) is None:
            setattr(least, name, b"")
    return least


def _tagged(message: type[Message], version: int, prefix: bytes) -> Grow:
    def grow(count: int) -> bytes:
        value: Any = sample(message, version)
        value.unknown_tagged_fields = tuple((5000 + number, b"") for number in range(count))
        return prefix + codec(message, version).encode(value)

    return grow
