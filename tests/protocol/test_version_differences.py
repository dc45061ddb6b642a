"""Steps between versions: against the bytes that they are about, kio's classes, and the table read from
Kafka's own schemas."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings

from tests.matrix import check_each
from tests.protocol.generate import messages
from tests.protocol.kio_side import kio_class
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.values import Message
from weir.protocol.version_differences import (
    THROTTLE_FIELD,
    DifferenceKind,
    Position,
    VersionDifference,
    alike,
    version_difference,
    version_differences,
)

TABLE: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["responses"]
EVERY: Final = [found for key in schema.api_keys() for found in version_differences(key)]
CHEAP: Final = [found for found in EVERY if found.change is not DifferenceKind.OTHER]


def api_name(api_key: int) -> str:
    return ApiKey(api_key).name


def name(found: VersionDifference) -> str:
    return f"{api_name(found.api_key)}-v{found.version}"


# Bytes


def inserted(older: bytes, position: Position | None, response: Message) -> bytes:
    """The older body with the newer one's field where it belongs."""
    field = int(getattr(response, THROTTLE_FIELD, 0)).to_bytes(4, "big", signed=True)
    match position:
        case Position.FIRST:
            return field + older
        case Position.LAST:
            return older + field
        case None:
            return older


@pytest.mark.parametrize("api_key", dict.fromkeys(found.api_key for found in CHEAP), ids=api_name)
def test_both_versions_are_the_same_bytes_but_for_the_throttle_time(api_key: int) -> None:
    check_each([found for found in CHEAP if found.api_key == api_key], check_step, name=name)


def check_step(found: VersionDifference) -> None:
    asks, answers = request_type(found.api_key), response_type(found.api_key)
    older, newer = found.version - 1, found.version

    @settings(max_examples=7)
    @given(request=messages(asks, newer), response=messages(answers, newer))
    def check(request: Message, response: Message) -> None:
        assert codec(asks, older).encode(request) == codec(asks, newer).encode(request)
        told_before = response
        if found.change is DifferenceKind.THROTTLE:
            told_before = msgspec.structs.replace(response, **{THROTTLE_FIELD: 0})
        body = codec(answers, older).encode(told_before)
        assert codec(answers, newer).encode(response) == inserted(body, found.throttle, response)

    check()


# kio


def shape(cls: Any) -> Any:
    """What a class of kio's has on the wire: names, types, tags, encoding."""
    hints = typing.get_type_hints(cls)
    fields = [(each.name, _typed(hints[each.name]), dict(each.metadata)) for each in dataclasses.fields(cls)]
    return cls.__flexible__, fields


def _typed(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return shape(hint)
    arguments = typing.get_args(hint)
    return (typing.get_origin(hint), *map(_typed, arguments)) if arguments else hint


def seen_by_kio(api_key: int, version: int) -> tuple[DifferenceKind, Position | None] | None:
    """The step as kio's classes differ; None if kio lacks one of the versions."""
    old, new = (
        [kio_class(api_key, kind, each) for kind in ("request", "response")]
        for each in (version - 1, version)
    )
    if None in (*old, *new):
        return None
    headers_same = [each.__header_schema__ for each in old] == [each.__header_schema__ for each in new]
    if not headers_same or shape(old[0]) != shape(new[0]):
        return DifferenceKind.OTHER, None
    (old_flexible, before), (new_flexible, after) = shape(old[1]), shape(new[1])
    if old_flexible == new_flexible and before == after:
        return DifferenceKind.SAME, None
    names = [field for field, _type, _metadata in after]
    if old_flexible != new_flexible or before != [each for each in after if each[0] != "throttle_time"]:
        return DifferenceKind.OTHER, None
    return DifferenceKind.THROTTLE, Position.FIRST if names[0] == "throttle_time" else Position.LAST


def test_kio_sees_the_same_changes() -> None:
    seen = {each: seen_by_kio(each.api_key, each.version) for each in EVERY}
    compared = {each: change for each, change in seen.items() if change is not None}
    assert len(compared) > 200
    assert {each: (each.change, each.throttle) for each in compared} == compared
    assert {each.change for each in compared} == set(DifferenceKind)


# Kafka's schemas


def test_the_field_comes_where_kafkas_schemas_have_it() -> None:
    for api in TABLE:
        rows = {row["version"]: row for row in api["versions"]}
        for found in version_differences(api["api_key"]):
            if found.change is DifferenceKind.THROTTLE:
                assert not rows[found.version - 1]["present"]
                assert rows[found.version]["position"] == typing.cast("Position", found.throttle).value
                assert found.version == api["throttle_from"]
            if found.change is DifferenceKind.SAME and {found.version, found.version - 1} <= rows.keys():
                assert rows[found.version - 1]["present"] == rows[found.version]["present"]
                headers = ("request_header_version", "response_header_version")
                assert all(rows[found.version - 1][each] == rows[found.version][each] for each in headers)


@pytest.mark.parametrize(
    ("api_key", "version", "why"),
    [
        (ApiKey.CONTROLLED_SHUTDOWN, 1, "the header gets a client-id"),
        (ApiKey.JOIN_GROUP, 1, "the request gets rebalance_timeout_ms"),
        (ApiKey.FIND_COORDINATOR, 1, "the request gets key_type, the response error_message too"),
        (ApiKey.LIST_OFFSETS, 2, "the request gets isolation_level"),
        (ApiKey.METADATA, 5, "a struct within the response gets offline_replicas"),
        (ApiKey.DELETE_TOPICS, 4, "flexible"),
        (ApiKey.CREATE_TOPICS, 5, "flexible"),
        (ApiKey.OFFSET_FETCH, 2, "topics may be null"),
    ],
)
def test_what_changes_more_is_told_apart(api_key: int, version: int, why: str) -> None:
    assert version_difference(api_key, version).change is DifferenceKind.OTHER, why


def test_a_tag_buffer_is_a_difference_also_where_there_are_no_fields() -> None:
    data = b'{"versions": "0-1", "flexible": "1+", "fields": []}'
    found = schema.parse_message(data, "ARequest", "request", 0)
    assert not alike(found.layout(0), found.layout(1))
