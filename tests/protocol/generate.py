"""Hypothesis strategies for messages, built from the schemas: any value that a message can have in a
version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeVar

import pytest
from hypothesis import strategies as st

from tests.matrix import check_each, named_as
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.encoding import TAG_MAX
from weir.protocol.schema import Layout, Slot, api_keys
from weir.protocol.values import Message, Value, schema_of

M = TypeVar("M", bound="Message")
Strategy = st.SearchStrategy[Any]

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT: Final = st.text(max_size=8)
_BYTES: Final = st.binary(max_size=16)
_ANY: Final[dict[str, Strategy]] = {
    **{name: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _BITS.items()},
    "uint16": st.integers(0, 0xFFFF),
    "uint32": st.integers(0, 0xFFFFFFFF),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}

# What kio has types of its own for: it takes known error codes, and times that a datetime can hold.
_TAME: Final[dict[str, Strategy]] = {
    **_ANY,
    "int64": st.integers(0, 1 << 41),
    "float64": st.floats(-1e9, 1e9),
    "error_code": st.integers(-1, 100),
}

_UNKNOWN_TAGS: Final = st.dictionaries(st.integers(1000, TAG_MAX), _BYTES, max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)


def every_version() -> list[tuple[type[Message], int]]:
    types = [make(key) for key in api_keys() for make in (request_type, response_type)]
    return [(message, version) for message in types for version in schema_of(message).versions]


def version_id(message: type[Message], version: int) -> str:
    """What a test of one version is called."""
    return f"{message.__name__}-v{version}"


def each_version(
    versions: Iterable[tuple[type[Message], int]],
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Make one test for each API, which checks all versions of its request and response that are given.
    A failure names all versions that failed.
    """
    by_api: dict[str, list[tuple[type[Message], int]]] = {}
    for message, version in versions:
        api = message.__name__.removesuffix("Request").removesuffix("Response")
        by_api.setdefault(api, []).append((message, version))

    def decorate(check: Callable[..., object]) -> Callable[..., None]:
        def test(api_versions: list[tuple[type[Message], int]]) -> None:
            check_each(
                api_versions,
                lambda pair: check(message=pair[0], version=pair[1]),
                name=lambda pair: version_id(*pair),
            )

        each_api = pytest.mark.parametrize("api_versions", by_api.values(), ids=by_api)
        made: Callable[..., None] = each_api(named_as(check, test))
        return made

    return decorate


@cache
def messages(message: type[Message], version: int, *, tame: bool = False) -> Strategy:
    """Values that `message` can have in `version`; if `tame`, those that other libraries have types for."""
    return _struct(message, message, codec(message, version).layout, tame)


def _struct(message: type[Message], built: type[Value], layout: Layout, tame: bool) -> Strategy:
    fields = {slot.name: _slot(message, slot, tame) for slot in layout.fields + layout.tagged}
    if layout.flexible and not tame:
        fields["unknown_tagged_fields"] = st.just(()) | _UNKNOWN_TAGS
    return st.builds(built, **fields)


def _slot(message: type[Message], slot: Slot, tame: bool) -> Strategy:
    if slot.struct is not None:
        value = _struct(message, getattr(message, slot.type), slot.struct, tame)
    elif tame and slot.name.endswith("error_code"):
        value = _TAME["error_code"]
    else:
        value = (_TAME if tame else _ANY)[slot.type]
    if slot.is_array:
        value = st.lists(value, max_size=2)
    return st.none() | value if slot.nullable else value


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
