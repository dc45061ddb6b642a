"""Heads of frames, as the codec and kio write them, cut anywhere, and with lengths that lie."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    INCOMPLETE,
    LENGTH,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    client_id_end,
    request_body,
    response_body,
    skip_tags,
)
from weir.protocol.messages import RequestHeader, ResponseHeader

FindBody: TypeAlias = Callable[..., int]
BODY: Final = b"the body"
BEFORE: Final = b"a frame before"
CLIENT_IDS: Final = [None, "", "weir", "ä" * 100, "c" * 32_767]
TAGS: Final = [(), ((0, b""),), ((3, b"x"), (127, b"yy"), (128, b"z" * 128), (2**31 - 2, b"t" * 20_000))]
UNBOUNDED: Final = b"\xff\xff\xff\xff\x0f"
"""The varint of 2**32 - 1."""


def framed(head: bytes, body: bytes = BODY) -> bytes:
    return LENGTH.pack(len(head) + len(body)) + head + body


def request_head(client_id: str | None, tags: tuple[tuple[int, bytes], ...], *, flexible: bool) -> bytes:
    value = RequestHeader(
        request_api_key=3,
        request_api_version=12 if flexible else 8,
        correlation_id=-77,
        client_id=client_id,
        unknown_tagged_fields=tags,
    )
    return codec(RequestHeader, 2 if flexible else 1).encode(value)


def response_head(tags: tuple[tuple[int, bytes], ...], *, flexible: bool) -> bytes:
    value = ResponseHeader(correlation_id=-77, unknown_tagged_fields=tags)
    return codec(ResponseHeader, 1 if flexible else 0).encode(value)


HEADS: Final = [
    *((request_body, request_head(client_id, (), flexible=False), False) for client_id in CLIENT_IDS),
    *(
        (request_body, request_head(client_id, tags, flexible=True), True)
        for client_id in CLIENT_IDS
        for tags in TAGS
    ),
    (response_body, response_head((), flexible=False), False),
    *((response_body, response_head(tags, flexible=True), True) for tags in TAGS),
]
each_head = pytest.mark.parametrize(("find", "head", "flexible"), HEADS)


# Whole frames


def test_the_heads_of_frames_have_their_length_and_their_numbers() -> None:
    for flexible in (False, True):
        request = framed(request_head("weir", (), flexible=flexible))
        assert REQUEST_HEAD.unpack_from(request) == (len(request) - 4, 3, 12 if flexible else 8, -77)
        response = framed(response_head((), flexible=flexible))
        assert RESPONSE_HEAD.unpack_from(response) == (len(response) - 4, -77)


@pytest.mark.parametrize("client_id", CLIENT_IDS)
@pytest.mark.parametrize("flexible", [False, True])
def test_request_bodies_are_found_behind_headers_written_by_kio(
    client_id: str | None, flexible: bool
) -> None:
    out = io.BytesIO()
    kind = KioRequestHeaderV2 if flexible else KioRequestHeaderV1
    key, version, correlation_id = i16(3), i16(9), i32(5)
    value = kind(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    entity_writer(kind)(out, value)
    data = framed(out.getvalue())
    assert data[request_body(data, 0, len(data), flexible=flexible) :] == BODY


@pytest.mark.parametrize("client_id", CLIENT_IDS)
def test_the_client_id_lies_between_its_offset_and_its_end(client_id: str | None) -> None:
    data = framed(request_head(client_id, (), flexible=False))
    stop = client_id_end(data, 0, len(data))
    encoded = (client_id or "").encode()
    length = -1 if client_id is None else len(encoded)
    assert data[CLIENT_ID_OFFSET:stop] == struct.pack(">h", length) + encoded


# Cut frames


def ends(head: bytes) -> list[int]:
    """Where to cut: everywhere in short heads, around the interesting places of long ones."""
    size = LENGTH.size + len(head)
    return list(range(size)) if size < 500 else [*range(40), *range(size - 40, size)]


@each_head
def test_a_cut_head_is_incomplete(find: FindBody, head: bytes, flexible: bool) -> None:
    data = framed(head)
    for end in ends(head):
        for behind in (b"", b"\x00" * 40, b"\xff" * 40):  # another frame's: must not matter
            assert find(data[:end] + behind, 0, end, flexible=flexible) == INCOMPLETE
    whole = LENGTH.size + len(head)
    assert find(data[:whole], 0, whole, flexible=flexible) == whole


# Lengths that lie


def test_a_client_id_longer_than_its_frame_never_completes() -> None:
    """Whoever has the whole frame must take that for an error: more bytes will not come."""
    data = framed(struct.pack(">hhih", 3, 9, 1, 32_767) + b"weir")
    assert request_body(data, 0, len(data), flexible=False) == INCOMPLETE


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00" + UNBOUNDED + bytes(1000),  # size
        b"\x02\x00\x05" + bytes(5),  # one of two
        b"\x01\x00\x7f" + bytes(126),  # one byte short
    ],
)
def test_tags_longer_than_their_frame_never_complete(tags: bytes) -> None:
    assert skip_tags(tags, 0, len(tags)) == INCOMPLETE


@pytest.mark.timeout(30)  # a look at each of the tags claimed would take minutes
def test_a_header_with_a_million_tags_is_refused_before_they_are_scanned() -> None:
    tags = UNBOUNDED + bytes(1_000_000)
    with pytest.raises(ProtocolError, match="tagged fields"):
        skip_tags(tags, 0, len(tags))


@pytest.mark.parametrize("before", [b"", b"\x01", b"\x01\x00", b"\x02\x00\x01x"])
def test_a_varint_of_six_bytes_is_an_error_with_its_offset(before: bytes) -> None:
    """In the count, a tag, a size, and behind another tag."""
    long = before + b"\x80\x80\x80\x80\x80\x00"
    request = BEFORE + framed(struct.pack(">hhih", 3, 9, 1, -1) + long)
    with pytest.raises(ProtocolError, match="longer than five bytes") as caught:
        request_body(request, len(BEFORE), len(request), flexible=True)
    assert caught.value.offset == CLIENT_ID_OFFSET + 2 + len(before) + 5
    response = BEFORE + framed(struct.pack(">i", 1) + long)
    with pytest.raises(ProtocolError, match="longer than five bytes") as caught:
        response_body(response, len(BEFORE), len(response), flexible=True)
    assert caught.value.offset == RESPONSE_HEAD_BYTES + len(before) + 5
