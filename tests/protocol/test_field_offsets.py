"""Places against the table read from Kafka's own schemas, and against where codecs put the fields."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue
from kio.static.primitive import i32Timedelta

from tests.matrix import in_one_test
from tests.protocol.generate import each_version, every_version, messages, sample, version_id
from tests.protocol.kio_samples import KNOWN
from weir.protocol.api import is_flexible, request_header_version, response_header_version
from weir.protocol.codec import codec, response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE
from weir.protocol.messages import (
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset, tag_section
from weir.protocol.values import Message, schema_of

THROTTLE: Final = "throttle_time_ms"
TABLE: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["responses"]
ROWS: Final = [(api, row) for api in TABLE for row in api["versions"]]
ROW_IDS: Final = [f"{api['name']}-v{row['version']}" for api, row in ROWS]

EVERY: Final = every_version()
THROTTLED: Final = [(response_type(api["api_key"]), row["version"]) for api, row in ROWS if row["present"]]
WALKED: Final[list[tuple[type[Message], int]]] = [
    (FetchResponse, 18),
    (FetchResponse, 4),
    (ProduceResponse, 8),
    (ProduceResponse, 10),
    (ProduceRequest, 8),
    (ProduceRequest, 13),
    (MetadataResponse, 12),
]
"""A few with strings, arrays, structs and records in both encodings."""


def the_place(message: type[Message], version: int, field: str) -> FieldOffset:
    found = field_offset(message, version, field)
    assert found is not None
    return found


def the_tags(message: type[Message], version: int) -> FieldOffset:
    found = tag_section(message, version)
    assert found is not None
    return found


def all_places(message: type[Message], version: int) -> list[tuple[FieldOffset, str | None]]:
    names = [slot.name for slot in codec(message, version).layout.fields]
    found = [
        (the_place(message, version, name), before)
        for name, before in zip(names, [None, *names], strict=False)
    ]
    tags = tag_section(message, version)
    return found if tags is None else [*found, (tags, names[-1] if names else None)]


def difference(one: bytes, other: bytes) -> int:
    """The first byte in which two encodings differ, which are otherwise alike."""
    assert len(one) == len(other)
    return next(index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])


# The table


@in_one_test
@pytest.mark.parametrize(("api", "row"), ROWS, ids=ROW_IDS)
def test_the_throttle_time_is_where_kafkas_schemas_have_it(api: dict[str, Any], row: dict[str, Any]) -> None:
    found = field_offset(response_type(api["api_key"]), row["version"], THROTTLE)
    layout = codec(response_type(api["api_key"]), row["version"]).layout
    assert (found is not None) == row["present"]
    if found is None:
        return
    names = [slot.name for slot in layout.fields]
    assert names.index(THROTTLE) == row["index"]
    assert len(names) == row["fields"]
    assert found.fixed_offset == row["body_offset"]
    last = row["position"] == "last"
    assert last == (row["index"] == row["fields"] - 1)
    if last:
        assert found.offset_from_end == (None if layout.flexible else 4)


@in_one_test
@pytest.mark.parametrize(("api", "row"), ROWS, ids=ROW_IDS)
def test_the_tag_section_and_the_headers_are_those_of_kafkas_schemas(
    api: dict[str, Any], row: dict[str, Any]
) -> None:
    version = row["version"]
    layout = codec(response_type(api["api_key"]), version).layout
    expected = [name.lower() for name in row["tagged_fields"]]
    assert [slot.name.replace("_", "") for slot in layout.tagged] == expected
    flexible = api["flexible_from"] is not None and version >= api["flexible_from"]
    assert (tag_section(response_type(api["api_key"]), version) is not None) == flexible
    assert is_flexible(api["api_key"], version) == flexible
    assert request_header_version(api["api_key"], version) == row["request_header_version"]
    assert response_header_version(api["api_key"], version) == row["response_header_version"]


# Where the codecs put the fields


@given(data=st.data())
@settings(max_examples=1)
@each_version(EVERY)
def test_every_place_is_where_the_codec_puts_the_field(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(message, version))
    used = codec(message, version)
    body = used.encode(value)
    for found, before in all_places(message, version):
        expected = 0 if before is None else len(used.encode_prefix(value, before))
        framed = b"head" + body + b"next frame"
        assert found.locate(framed, 4, 4 + len(body), True) == 4 + expected
        assert found.locate(framed, 4, 4 + len(body), False) == 4 + expected


KIO: Final = [pair for pair in THROTTLED if pair in KNOWN]


@given(data=st.data())
@settings(max_examples=1)
@each_version(KIO)
def test_the_place_is_where_kio_writes_the_throttle_time(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    ours = codec(message, version).encode(data.draw(messages(message, version, tame=True)))
    kind = load_response_schema(schema_of(message).api_key, version)
    try:
        value, _size = entity_reader(kind)(ours, 0)
    except OutOfBoundValue:  # where kio has a time, -1 is one only if the schema's default says so
        return
    bodies = []
    for ms in (0x11223344, 0x55667788):
        throttle = i32Timedelta.parse(timedelta(milliseconds=ms))
        out = io.BytesIO()
        entity_writer(kind)(out, replace(value, throttle_time=throttle))
        bodies.append(out.getvalue())
    assert the_place(message, version, THROTTLE).locate(bodies[0], 0, len(bodies[0]), True) == difference(
        *bodies
    )


@pytest.mark.parametrize("version", list(schema_of(FetchRequest).versions))
def test_a_fetchs_max_bytes_is_fixed_where_the_version_has_it(version: int) -> None:
    found = field_offset(FetchRequest, version, "max_bytes")
    if version < 3:
        assert found is None
        return
    assert found is not None
    assert found.fixed_offset == (12 if version < 15 else 8)  # the replica id has become a tag
    body = bytearray(codec(FetchRequest, version).encode(FetchRequest(max_bytes=52_428_800)))
    position = found.locate(body, 0, len(body), False)
    assert found.read(body, position) == 52_428_800
    found.write(body, position, 1000)
    decoded = codec(FetchRequest, version).decode(bytes(body))
    assert decoded == FetchRequest(max_bytes=1000)


@in_one_test
@pytest.mark.parametrize("version", list(schema_of(ProduceRequest).versions))
@pytest.mark.parametrize("transactional_id", [None, "", "t", "t" * 126, "t" * 127, "t" * 20_000])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_produces_acks_stand_behind_its_transactional_id(
    version: int, transactional_id: str | None, acks: int
) -> None:
    value = ProduceRequest(acks=acks, transactional_id=transactional_id if version >= 3 else None)
    body = codec(ProduceRequest, version).encode(value)
    found = the_place(ProduceRequest, version, "acks")
    assert found.fixed_offset == (0 if version < 3 else None)
    assert found.read(body, found.locate(body, 0, len(body), True)) == acks


# Bytes that end early, or lie


@pytest.mark.parametrize(("message", "version"), WALKED, ids=[version_id(*pair) for pair in WALKED])
def test_every_truncation_is_incomplete_or_an_error(message: type[Message], version: int) -> None:
    body = codec(message, version).encode(sample(message, version))
    for found, _before in all_places(message, version):
        position = found.locate(body, 0, len(body), True)
        size = 1 if found._integer is None else found._integer.size
        for end in range(len(body)):
            # What lies behind `end` is another frame's, and must not matter.
            for data in (body[:end], body[:end] + b"\xff" * 20, body[:end] + b"\x00" * 20):
                at = found.locate(data, 0, end, False)
                assert at == (position if position + size <= end else INCOMPLETE)
        for end in range(min(position + size, len(body))):
            if found.offset_from_end is None:
                with pytest.raises(ProtocolError) as caught:
                    found.locate(body[:end], 0, end, True)
                assert caught.value.api == message.__name__
                assert caught.value.version == version
                assert caught.value.offset >= 0


@pytest.mark.parametrize("version", [1, 4, 8])
def test_a_complete_body_shorter_than_any_is_an_error_also_where_the_place_counts_from_the_end(
    version: int,
) -> None:
    found = the_place(ProduceResponse, version, THROTTLE)
    assert found.offset_from_end == 4
    body = codec(ProduceResponse, version).encode(ProduceResponse(throttle_time_ms=5))
    assert found.read(body, found.locate(body, 0, len(body), True)) == 5
    for end in range(len(body)):
        with pytest.raises(ProtocolError, match=f"ProduceResponse v{version} at byte {end}"):
            found.locate(body, 0, end, True)


@pytest.mark.parametrize(
    ("version", "body", "reason"),
    [
        (9, b"\xff\xff\xff\xff\xff\x00", "varint longer than five bytes"),
        (9, b"\x80\x80\x80\x80\x08", "more than a message can hold"),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_a_length_that_cannot_be_is_an_error_at_once(
    version: int, body: bytes, reason: str, complete: bool
) -> None:
    found = the_place(ProduceRequest, version, "acks")
    with pytest.raises(ProtocolError, match=reason) as caught:
        found.locate(b"head" + body + bytes(40), 4, 44, complete)
    assert caught.value.offset == len(body.rstrip(b"\x00"))


@pytest.mark.parametrize(
    ("version", "body"),
    [(8, b"\xff\xff"), (8, b"\xff\xfe"), (8, b"\x80\x00"), (9, b"\x00"), (9, b"\xff\xff\xff\xff\x0f")],
)
def test_every_negative_length_in_a_request_is_null_as_at_a_broker(version: int, body: bytes) -> None:
    found = the_place(ProduceRequest, version, "acks")
    assert found.locate(b"head" + body + bytes(40), 4, 44 + len(body), True) == 4 + len(body)


@pytest.mark.timeout(30)  # a look at each element would take minutes
@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x07", b"\x81\x92\xf4\x01"])
def test_elements_that_cannot_all_be_there_are_not_looked_at(claim: bytes) -> None:
    """2147483646 or 4000000 topics of at least 3 bytes each, in four megabytes of zeros."""
    body = claim + bytes(4_000_000)
    tags = the_tags(ProduceResponse, 9)
    assert tags.locate(body, 0, len(body), False) == INCOMPLETE
    with pytest.raises(ProtocolError, match="ends too early") as caught:
        tags.locate(body, 0, len(body), True)
    assert caught.value.offset == len(claim)
