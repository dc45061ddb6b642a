"""Random messages, made from the schemas: any value that a message can have in a version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from random import Random
from typing import Any, Final, TypeVar

import pytest
from hypothesis import strategies as st

from tests.matrix import check_each, named_as
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.encoding import TAG_MAX
from weir.protocol.schema import Layout, Slot, api_keys
from weir.protocol.values import Message, Value, schema_of

M = TypeVar("M", bound="Message")

_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LETTERS: Final = "ab.-\0\x7f\u00e9\u20ac\uffff\U0001f600"
_FLOATS: Final = (0.0, -0.0, 5e-324, 1.7e308, inf, -inf)


def _integer(bits: int) -> Callable[[Random], int]:
    """Draw from numbers of each length, of both signs, and often the ends."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return lambda chance: chance.choice((0, 1, -1, low, high, chance.getrandbits(chance.randrange(1, bits))))


def _bytes(chance: Random) -> bytes:
    return chance.randbytes(chance.randrange(17))


_ANY: Final[dict[str, Callable[[Random], Any]]] = {
    **{name: _integer(bits) for name, bits in _INTEGERS.items()},
    "uint16": lambda chance: chance.getrandbits(chance.randrange(17)),
    "uint32": lambda chance: chance.getrandbits(chance.randrange(33)),
    "bool": lambda chance: chance.random() < 0.5,
    "float64": lambda chance: chance.choice((*_FLOATS, chance.uniform(-1e9, 1e9))),
    "uuid": lambda chance: uuid.UUID(int=chance.getrandbits(128)),
    "string": lambda chance: "".join(chance.choices(_LETTERS, k=chance.randrange(9))),
    "bytes": _bytes,
    "records": _bytes,
}

# What kio has types of its own for: it takes known error codes, and times that a datetime can hold.
_TAME: Final[dict[str, Callable[[Random], Any]]] = {
    **_ANY,
    "int64": lambda chance: chance.getrandbits(chance.randrange(42)),
    "float64": lambda chance: chance.uniform(-1e9, 1e9),
    "error_code": lambda chance: chance.randrange(-1, 101),
}


def every_version() -> list[tuple[type[Message], int]]:
    types = [make(key) for key in api_keys() for make in (request_type, response_type)]
    return [(message, version) for message in types for version in schema_of(message).versions]


def version_id(message: type[Message], version: int) -> str:
    return f"{message.__name__}-v{version}"


def each_version(
    versions: Iterable[tuple[type[Message], int]],
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Make one test for each API, which checks all versions of its request and response that are given.
    A failure names all versions that failed. `hypothesis.given` belongs above this decorator: each of its
    runs costs milliseconds.
    """
    by_api: dict[str, list[tuple[type[Message], int]]] = {}
    for message, version in versions:
        api = message.__name__.removesuffix("Request").removesuffix("Response")
        by_api.setdefault(api, []).append((message, version))

    def decorate(check: Callable[..., object]) -> Callable[..., None]:
        def test(api_versions: list[tuple[type[Message], int]], **drawn: object) -> None:
            check_each(
                api_versions,
                lambda pair: check(message=pair[0], version=pair[1], **drawn),
                name=lambda pair: version_id(*pair),
            )

        each_api = pytest.mark.parametrize("api_versions", by_api.values(), ids=by_api)
        made: Callable[..., None] = each_api(named_as(check, test))
        return made

    return decorate


@cache
def messages(message: type[Message], version: int, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """Values that `message` can have in `version`; if `tame`, those that other libraries have types for.

    A value is drawn from a seed: to make strategies of whole schemas takes longer than the tests do.
    """
    return st.integers(0, 0xFFFFFFFF).map(lambda seed: drawn(message, version, Random(seed), tame=tame))


def drawn(message: type[M], version: int, chance: Random, *, tame: bool = False) -> M:
    built: M = _struct(message, message, codec(message, version).layout, chance, tame)
    return built


def _struct(message: type[Message], built: type[Value], layout: Layout, chance: Random, tame: bool) -> Any:
    defaults = chance.choice((0.0, 0.0, 0.5, 0.95))  # share of fields; old versions refuse some values
    fields = {
        slot.name: _slot(message, slot, chance, tame)
        for slot in layout.fields + layout.tagged
        if chance.random() >= defaults or slot.type == "records"  # those are null by default
    }
    if layout.flexible and not tame:
        tags = chance.sample((1000, 16_384, TAG_MAX), chance.choice((0, 0, 1, 2)))
        fields["unknown_tagged_fields"] = tuple((tag, _bytes(chance)) for tag in sorted(tags))
    return built(**fields)


def _slot(message: type[Message], slot: Slot, chance: Random, tame: bool) -> Any:
    if slot.nullable and chance.random() < 0.3:
        return None
    count = chance.randrange(3) if slot.is_array else 1
    if slot.struct is not None:
        kind = getattr(message, slot.type)
        found = [_struct(message, kind, slot.struct, chance, tame) for _ in range(count)]
    else:
        named = "error_code" if tame and slot.name.endswith("error_code") else slot.type
        draw = (_TAME if tame else _ANY)[named]
        found = [draw(chance) for _ in range(count)]
    return found if slot.is_array else found[0]


SAMPLE_ID: Final = uuid.UUID(int=1 << 100 | 7)


def sample(message: type[M], version: int) -> M:
    """One value with something in every field: arrays of one element, nothing null, one unknown tag."""
    built: M = _sample_struct(message, message, codec(message, version).layout)
    return built


def _sample_struct(message: type[Message], built: type[Value], layout: Layout) -> Any:
    fields = {slot.name: _sample_slot(message, slot) for slot in layout.fields + layout.tagged}
    if layout.flexible:
        fields["unknown_tagged_fields"] = ((5000, b"unknown"),)
    return built(**fields)


def _sample_slot(message: type[Message], slot: Slot) -> Any:
    samples: dict[str, Any] = {
        "string": "käse",
        "bytes": b"bytes",
        "records": b"records",
        "uuid": SAMPLE_ID,
        "bool": True,
        "float64": 0.1,
    }
    if slot.struct is not None:
        value = _sample_struct(message, getattr(message, slot.type), slot.struct)
    else:
        value = samples.get(slot.type, 77)
    return [value] if slot.is_array else value
