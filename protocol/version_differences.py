"""The difference between consecutive versions of an API on the wire.

The difference is computed from the layouts in the schemas. Two versions may be the same on the wire and still
differ in meaning (JoinGroup v4: the broker makes a new member join twice, KIP-394).
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.protocol import schema
from weir.protocol.api import request_header_version, response_header_version

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot

THROTTLE_FIELD: Final = "throttle_time_ms"


class DifferenceKind(Enum):
    """The kind of difference between two consecutive versions."""

    SAME = "same"
    """Requests and responses have the same layout; only the version in the request header differs."""
    THROTTLE = "throttle"
    """Only the response differs: the new version adds throttle_time_ms (int32, top level, not tagged)."""
    OTHER = "other"
    """Requests, responses or headers differ in another way."""


class Position(Enum):
    """The position of throttle_time_ms among the fields of a response."""

    FIRST = "first"
    LAST = "last"


class VersionDifference(NamedTuple):
    """The difference between `version` - 1 and `version` of an API."""

    api_key: int
    version: int
    change: DifferenceKind
    throttle: Position | None
    """Position of the new field; None unless the change is THROTTLE."""


@cache
def version_difference(api_key: int, version: int) -> VersionDifference:
    """Return the difference between `version` - 1 and `version` (cached). Raises UnknownVersionError if the
    schemas lack one of the two.
    """
    headers_alike = _headers(api_key, version - 1) == _headers(api_key, version)
    found = schema.api(api_key)
    if not headers_alike or found is None or not _requests_alike(found, version):
        return VersionDifference(api_key, version, DifferenceKind.OTHER, None)
    return VersionDifference(api_key, version, *_response_change(found.response, version))


def version_differences(api_key: int) -> tuple[VersionDifference, ...]:
    """Return the differences between all consecutive versions of an API, ascending; () if the schemas lack
    the API.
    """
    found = schema.api(api_key)
    if found is None:
        return ()
    return tuple(
        version_difference(api_key, version)
        for version in found.request.versions
        if version - 1 in found.request.versions
    )


def _headers(api_key: int, version: int) -> tuple[int, int]:
    return request_header_version(api_key, version), response_header_version(api_key, version)


def _requests_alike(found: schema.Api, version: int) -> bool:
    return alike(found.request.layout(version - 1), found.request.layout(version))


def alike(old: Layout, new: Layout) -> bool:
    """Return True if any bytes decode to the same field names and values with both layouts."""
    return (
        old.flexible == new.flexible
        and _slots_alike(old.fields, new.fields)
        and _slots_alike(old.tagged, new.tagged)
    )


def _slots_alike(old: tuple[Slot, ...], new: tuple[Slot, ...]) -> bool:
    return len(old) == len(new) and all(map(_slot_alike, old, new))


def _slot_alike(old: Slot, new: Slot) -> bool:
    if (old.field, old.nullable, old.compact, old.tag) != (new.field, new.nullable, new.compact, new.tag):
        return False
    return old.struct is new.struct or (
        old.struct is not None and new.struct is not None and alike(old.struct, new.struct)
    )


def _response_change(response: schema.MessageSchema, version: int) -> tuple[DifferenceKind, Position | None]:
    old, new = response.layout(version - 1), response.layout(version)
    if alike(old, new):
        return DifferenceKind.SAME, None
    position = _added_throttle(old, new)
    return (DifferenceKind.OTHER, None) if position is None else (DifferenceKind.THROTTLE, position)


def _added_throttle(old: Layout, new: Layout) -> Position | None:
    """Return the position of throttle_time_ms in `new`; None if the layouts differ in anything else. The
    caller ensures that both layouts are flexible, or neither is.
    """
    for position, added, rest in (
        (Position.FIRST, new.fields[:1], new.fields[1:]),
        (Position.LAST, new.fields[-1:], new.fields[:-1]),
    ):
        if [slot.name for slot in added] != [THROTTLE_FIELD]:
            continue
        if _slots_alike(old.fields, rest) and _slots_alike(old.tagged, new.tagged):
            return position
    return None
