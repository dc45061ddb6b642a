"""Well-formed requests in shapes, and the cases that send them.

- minimal: each field has its default, or the first value of its recipe.
- maximal: each field of the version has another value than its default where its recipe allows one; arrays
  have two elements; tagged fields are there.
- random-N: values and lengths drawn from the recipe, by a generator seeded with the run's seed and the case's
  name. So a case is the same alone and among others.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, cast

import msgspec

from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.link import frame
from weir.conformance.probe.requests.recipes import HARMFUL, recipe
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.api import versions as known_versions
from weir.protocol.codec import codec, request_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.values import PYTHON_TYPES, ZERO_UUID, Message, Value, default_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weir.conformance.probe.requests.names import Names
    from weir.conformance.probe.requests.recipes import Recipe
    from weir.protocol.schema import Layout, Slot
    from weir.protocol.versions import VersionRange

MINIMAL: Final = "minimal"
MAXIMAL: Final = "maximal"
NO_ACKS: Final = "no-acks"
RANDOM: Final = "random-"
CORRELATION_ID: Final = 0x7765_6972
ELEMENTS: Final = 2
"""Maximum number of elements of an array."""
ANSWERED: Final = frozenset({CaseOutcome.ANSWER, CaseOutcome.ERROR})
_THROTTLING: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}
"""API → first version that may have error 89 (KIP-599)."""
_ANY_VALUE: Final[Mapping[type, Sequence[object]]] = {
    bool: (False, True),
    int: (0, 1),
    float: (0.0, 1.0),
    str: ("", "weir-probe"),
    bytes: (b"", b"weir-probe"),
}
_REFERENCE: Final = "protocol guide: Network"


def shapes(randoms: int) -> list[str]:
    """Return the names of the shapes, with this number of random ones."""
    return [MINIMAL, MAXIMAL, *(f"{RANDOM}{number}" for number in range(randoms))]


def well_formed(
    offered: Mapping[int, VersionRange], names: Names, seed: int, randoms: int = 3
) -> Iterator[Case]:
    """Yield the cases of every API and version that the target offers and the schemas have, except those in
    `HARMFUL`. `offered`: API key → versions in the target's ApiVersions response.
    """
    for api_key in sorted(offered):
        known = known_versions(api_key)
        if known is None or api_key in HARMFUL:
            continue
        for version in known.intersect(offered[api_key]):
            for shape in shapes(randoms):
                yield _case(api_key, version, shape, names, seed, offered[api_key])
            if api_key == ApiKey.PRODUCE:
                yield _case(api_key, version, NO_ACKS, names, seed, offered[api_key])


def request(api_key: int, version: int, shape: str, names: Names, seed: int = 0) -> Message:
    """Return the request of a shape. Raises UnknownVersionError if the schemas lack the version."""
    name = case_name(api_key, version, shape)
    names = msgspec.structs.replace(names, case=name, version=version)
    kind = request_type(api_key)
    values = recipe(api_key, names)
    if shape == NO_ACKS:
        values["acks"] = (0,)
    builder = _Builder(kind, values, shape, Random(f"{seed}/{name}"))  # noqa: S311  # not for secrets
    return cast("Message", builder.struct(kind, codec(kind, version).layout, None))


def case_name(api_key: int, version: int, shape: str) -> str:
    """Return the name of a case: "Metadata/v9/minimal"."""
    found = schema.api(api_key)
    return f"{f'API {api_key}' if found is None else found.name}/v{version}/{shape}"


def _case(api_key: int, version: int, shape: str, names: Names, seed: int, offered: VersionRange) -> Case:
    message = request(api_key, version, shape, names, seed)
    return Case(
        name=case_name(api_key, version, shape),
        api_key=api_key,
        version=version,
        data=frame(message, api_key, version, CORRELATION_ID),
        permitted=_permitted(api_key, version, shape, offered),
        errors=_errors(api_key, version),
        reference=_REFERENCE,
    )


def _permitted(api_key: int, version: int, shape: str, offered: VersionRange) -> frozenset[CaseOutcome]:
    """Return the outcomes of a well-formed request: an answer, with these exceptions.

    Kafka 4 offers Produce 0 to 2 for the sake of librdkafka, without having them (KAFKA-18659). A server that
    lets clients authenticate again closes the connection of a client that does so too early, or by another
    mechanism (KIP-368).
    """
    missing = api_key == ApiKey.PRODUCE and version < 3 and offered.max >= 12
    if missing or api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        return ANSWERED | {CaseOutcome.CLOSED}
    return frozenset({CaseOutcome.SILENCE}) if shape == NO_ACKS else ANSWERED


def _errors(api_key: int, version: int) -> frozenset[int]:
    """Return the error codes of a well-formed request: all except an exception in the server, and error 89 in
    a version without it.
    """
    throttling = ApiKey(api_key) in _THROTTLING and version >= _THROTTLING[ApiKey(api_key)]
    refused = {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE}
    return frozenset(
        set(ErrorCode) - refused - (set() if throttling else {ErrorCode.THROTTLING_QUOTA_EXCEEDED})
    )


class _Builder:
    """Builds the message of one case."""

    def __init__(self, message: type[Message], values: Recipe, shape: str, rng: Random) -> None:
        self._message = message
        self._values = values
        self._shape = MINIMAL if shape == NO_ACKS else shape
        self._rng = rng

    def struct(self, kind: type[Value], layout: Layout, element: int | None) -> Value:
        """Return a struct. `element`: number of the array's element that it is in; None outside arrays."""
        slots = (*layout.fields, *layout.tagged)
        values = {slot.name: self._value(layout.name, slot, element) for slot in slots}
        return kind(**values)  # type: ignore[arg-type]  # the layout has matching types

    def _value(self, struct: str, slot: Slot, element: int | None) -> object:
        if slot.is_array:
            return self._array(struct, slot)
        if slot.struct is None:
            return self._pick(self._choices(struct, slot), element if _tells_apart(slot) else None)
        if slot.nullable and self._is_null(slot):
            return None
        return self.struct(self._struct_type(slot), slot.struct, element)

    def _is_null(self, slot: Slot) -> bool:
        if slot.name in self._values or self._shape == MINIMAL:
            return True
        return self._shape != MAXIMAL and self._rng.random() < 0.5

    def _array(self, struct: str, slot: Slot) -> list[object] | None:
        count = self._count(slot)
        if count is None:
            return None
        if slot.struct is not None:
            kind = self._struct_type(slot)
            offset = 0 if self._shape == MAXIMAL else self._rng.randrange(ELEMENTS)
            return [self.struct(kind, slot.struct, offset + number) for number in range(count)]
        choices = self._choices(struct, slot)
        if self._shape in (MINIMAL, MAXIMAL):
            return list(choices[:count])
        return self._rng.sample(choices, min(count, len(choices)))

    def _count(self, slot: Slot) -> int | None:
        """Return the number of an array's elements; None for null."""
        empty: tuple[int | None, ...] = (None,) if default_of(slot.field, None) is None else ()
        given = cast("Sequence[int | None]", self._values.get(f"{slot.name}[]", (*empty, 0, 1, ELEMENTS)))
        counts = [count for count in given if count is not None or slot.nullable] or [0]
        if self._shape == MINIMAL:
            return counts[0]
        return counts[-1] if self._shape == MAXIMAL else self._rng.choice(counts)

    def _choices(self, struct: str, slot: Slot) -> list[object]:
        """Return the legal values of a field: at least one."""
        field = slot.field
        keys = (f"{struct}.{field.name}", field.name, f"<{field.entity_type}>")
        given = next((self._values[key] for key in keys if key in self._values), None)
        if given is not None:
            values = [value for value in given if value is not None or slot.nullable]
            return values or [_ANY_VALUE[PYTHON_TYPES[field.type]][0]]
        kind = PYTHON_TYPES[field.type]
        default = ZERO_UUID if kind is type(ZERO_UUID) else default_of(field, None)
        if slot.is_array:
            return list(_ANY_VALUE[kind])
        others = [value for value in _ANY_VALUE.get(kind, ()) if value != default]
        return [None if default is None and slot.nullable else default or _zero(kind), *others]

    def _pick(self, choices: Sequence[object], element: int | None) -> object:
        """Return one value; another one for each `element`, as far as there are any."""
        if self._shape == MINIMAL:
            return choices[0]
        if element is not None:
            return choices[element % len(choices)]
        return choices[-1] if self._shape == MAXIMAL else self._rng.choice(choices)

    def _struct_type(self, slot: Slot) -> type[Value]:
        return cast("type[Value]", getattr(self._message, slot.type))


def _tells_apart(slot: Slot) -> bool:
    """Return True if elements of an array need different values of this field."""
    field = slot.field
    return (
        field.type in ("string", "uuid")
        or field.map_key
        or "partition" in field.name
        or field.name == "index"
    )


def _zero(kind: type) -> object:
    return ZERO_UUID if kind is type(ZERO_UUID) else _ANY_VALUE[kind][0]
