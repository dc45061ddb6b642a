"""What the step from one version of an API to the next changes on the wire.

Derived from the schemas alone: it tells layouts apart, not meanings. A step can change nothing on the wire
and still mean something else (JoinGroup v4: the broker has a new member join twice, KIP-394).
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol import schema
from protocol.api import request_header_version, response_header_version

if TYPE_CHECKING:
    from protocol.schema import Layout, Slot

THROTTLE_FIELD: Final = "throttle_time_ms"


class Change(Enum):
    """How far two neighbouring versions differ."""

    SAME = "same"
    """Requests and responses lie alike; only the number in the request's head differs."""
    THROTTLE = "throttle"
    """As SAME, but the response has throttle_time_ms more (int32, top level, not tagged)."""
    OTHER = "other"


class Position(Enum):
    """Where throttle_time_ms stands among the fields of a response."""

    FIRST = "first"
    LAST = "last"


class VersionDifference(NamedTuple):
    """The step from `version` - 1 to `version` of an API."""

    api_key: int
    version: int
    change: Change
    throttle: Position | None
    """Where the field stands; None unless the change is THROTTLE."""


@cache
def version_difference(api_key: int, version: int) -> VersionDifference:
    """Return the step to `version`. Raises UnknownVersionError if the schemas lack it, or the one before."""
    headers_alike = _headers(api_key, version - 1) == _headers(api_key, version)
    found = schema.api(api_key)
    if not headers_alike or found is None or not _requests_alike(found, version):
        return VersionDifference(api_key, version, Change.OTHER, None)
    return VersionDifference(api_key, version, *_response_change(found.response, version))


def version_differences(api_key: int) -> tuple[VersionDifference, ...]:
    """All steps of an API, ascending; none if the schemas do not know it."""
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
    """Whether the same bytes are the same values in both layouts, names included."""
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


def _response_change(response: schema.MessageSchema, version: int) -> tuple[Change, Position | None]:
    old, new = response.layout(version - 1), response.layout(version)
    if alike(old, new):
        return Change.SAME, None
    position = _added_throttle(old, new)
    return (Change.OTHER, None) if position is None else (Change.THROTTLE, position)


def _added_throttle(old: Layout, new: Layout) -> Position | None:
    """Where the new layout has the field more, if that is all; both layouts are flexible, or neither is."""
    for position, added, rest in (
        (Position.FIRST, new.fields[:1], new.fields[1:]),
        (Position.LAST, new.fields[-1:], new.fields[:-1]),
    ):
        if [slot.name for slot in added] != [THROTTLE_FIELD]:
            continue
        if _slots_alike(old.fields, rest) and _slots_alike(old.tagged, new.tagged):
            return position
    return None
