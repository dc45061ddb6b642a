"""Requests and responses of every API: as small as their schemas allow, and with one array of any length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

from tests.wire.smallest import ZEROS, least
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.primitives import write_uvarint
from weir.protocol.schema import Layout, Slot, api_keys
from weir.protocol.values import Message, schema_of

_NAMING: Final = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}
"""Newest versions that name topics: topics have three bytes there, and rates."""
_DEEP: Final = 4
"""Arrays within arrays that are looked for."""


@dataclass(frozen=True)
class Big:
    """A body whose array `path` may have any number of elements."""

    path: str
    before: bytes
    element: bytes
    after: bytes
    compact: bool

    def body(self, size: int) -> bytes:
        """Return a body of about `size` bytes, with as many elements as fit."""
        count = max((size - len(self.before) - len(self.after)) // len(self.element), 1)
        number = bytearray()
        if self.compact:
            write_uvarint(number, count + 1)
        else:
            number += count.to_bytes(4, "big")
        return b"".join((self.before, number, self.element * count, self.after))


@cache
def bigs(message: type[Message], version: int) -> tuple[Big, ...]:
    """Return a `Big` for each array of the message in this version, at any depth."""
    layout = codec(message, version).layout
    return tuple(_big(message, version, path) for path in _array_paths(layout))


def every_api(*, all_versions: bool) -> Iterator[tuple[ApiKey, int]]:
    """Yield each API with its versions; unless `all_versions`, with its oldest, its newest, and the newest
    that names topics if a later one has topic ids.
    """
    for number in api_keys():
        known = list(schema_of(request_type(number)).versions)
        few = {known[0], known[-1], _NAMING.get(ApiKey(number), known[0])}
        for version in known if all_versions else sorted(few):
            yield ApiKey(number), version


def messages(api_key: int) -> tuple[type[Message], type[Message]]:
    return request_type(api_key), response_type(api_key)


def _array_paths(layout: Layout, above: tuple[Slot, ...] = ()) -> Iterator[tuple[Slot, ...]]:
    for slot in layout.fields:  # a tagged field has a length besides, which `Big` does not change
        path = (*above, slot)
        if slot.is_array:
            yield path
        if slot.struct is not None and len(path) < _DEEP:
            yield from _array_paths(slot.struct, path)


def _big(message: type[Message], version: int, path: tuple[Slot, ...]) -> Big:
    subject: Any = codec(message, version)
    one, two = (subject.encode(_with(message, message, subject.layout, path, count)) for count in (1, 2))
    size = len(two) - len(one)
    at = next(index for index, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1])
    compact = path[-1].compact
    start = at if compact else at - 3
    behind = at + 1
    name = ".".join(slot.name for slot in path)
    return Big(name, one[:start], one[behind : behind + size], one[behind + size :], compact)


def _with(
    message: type[Message], built: type[Any], layout: Layout, path: tuple[Slot, ...], count: int
) -> Any:
    """Return a value in which the array at the end of `path` has `count` elements."""
    slot, deeper = path[0], path[1:]
    value: Any
    if deeper:
        assert slot.struct is not None
        value = _with(message, getattr(message, slot.type), slot.struct, deeper, count)
    elif slot.struct is not None:
        value = least(message, getattr(message, slot.type), slot.struct)
    else:
        value = ZEROS.get(slot.type, 0)
    if slot.is_array:
        value = [value] * (1 if deeper else count)
    return msgspec.structs.replace(least(message, built, layout), **{slot.name: value})
