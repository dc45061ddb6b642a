"""`FieldFinder` finds what a scan finds, also in bodies that resemble a former one."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.generate import messages, version_id
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE
from weir.protocol.messages import FetchResponse, ProduceResponse, ShareAcknowledgeResponse
from weir.protocol.scanning.field_offsets import FieldOffset, field_offset, tag_section
from weir.protocol.scanning.field_scanner import Bytes
from weir.protocol.scanning.same_shape import SHAPE_BYTES_MAX, FieldFinder
from weir.protocol.values import Message, schema_of


def the_offset(message: type[Message], version: int) -> FieldOffset:
    if message is ShareAcknowledgeResponse:
        found = field_offset(message, version, "node_endpoints")
    else:
        found = tag_section(message, version)
    assert found is not None
    return found


FOUND: Final[list[tuple[type[Message], int]]] = [
    *((ProduceResponse, version) for version in schema_of(ProduceResponse).versions if version >= 9),
    *((FetchResponse, version) for version in schema_of(FetchResponse).versions if version >= 12),
    *((ShareAcknowledgeResponse, version) for version in schema_of(ShareAcknowledgeResponse).versions),
]
IDS: Final = [version_id(*pair) for pair in FOUND]


def outcome(offset: FieldOffset, data: bytes, body: int) -> int | str:
    try:
        return offset.locate(data, body, len(data), True)
    except ProtocolError as error:
        return str(error)


def found_by(finder: FieldFinder, data: bytes, body: int) -> int | str:
    try:
        return finder.find(data, body, len(data))
    except ProtocolError as error:
        return str(error)


def produced(offset: int, *, name: str = "orders", error: int = 0, message: str | None = None) -> bytes:
    partition = ProduceResponse.PartitionProduceResponse(
        index=3, error_code=error, base_offset=offset, error_message=message
    )
    topic = ProduceResponse.TopicProduceResponse(name=name, partition_responses=[partition])
    return codec(ProduceResponse, 10).encode(ProduceResponse(responses=[topic], throttle_time_ms=offset))


@pytest.mark.parametrize(("message", "version"), FOUND, ids=IDS)
@given(data=st.data())
@settings(max_examples=15)
def test_each_body_of_a_series_gives_the_position_of_its_own_scan(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    offset = the_offset(message, version)
    finder = FieldFinder(offset)
    values = data.draw(st.lists(messages(message, version), min_size=1, max_size=3))
    bodies = [codec(message, version).encode(value) for value in values]
    for _ in range(3):
        for body in bodies:
            framed = b"head" + body
            assert found_by(finder, framed, 4) == outcome(offset, framed, 4)


@pytest.mark.parametrize(("message", "version"), FOUND, ids=IDS)
@given(data=st.data())
@settings(max_examples=15)
def test_a_body_that_differs_in_some_bytes_from_a_known_one_is_not_mistaken_for_it(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    offset = the_offset(message, version)
    known = codec(message, version).encode(data.draw(messages(message, version)))
    for at in data.draw(st.sets(st.integers(0, len(known) - 1), max_size=20)):
        finder = FieldFinder(offset)
        for _ in range(3):
            finder.find(known, 0, len(known))
        other = bytearray(known)
        other[at] = data.draw(st.integers(0, 255))
        assert found_by(finder, bytes(other), 0) == outcome(offset, bytes(other), 0)


def test_responses_of_one_shape_are_scanned_twice_and_then_no_more() -> None:
    offset = the_offset(ProduceResponse, 10)
    scans = 0

    def counted(data: Bytes, body: int, end: int, allowed: list[int]) -> int:
        nonlocal scans
        scans += 1
        return scan(data, body, end, allowed)

    finder = FieldFinder(offset)
    scan, finder._locate = finder._locate, counted
    for number in range(10):
        body = produced(number)
        assert finder.find(body, 0, len(body)) == len(body) - 1
    assert scans == 2


@pytest.mark.parametrize("topics", [1, 30])
def test_a_field_behind_too_many_elements_is_not_searched_for(topics: int) -> None:
    finder = FieldFinder(the_offset(ProduceResponse, 10))
    partition = ProduceResponse.PartitionProduceResponse()
    topic = ProduceResponse.TopicProduceResponse(name="orders", partition_responses=[partition] * 2)
    body = codec(ProduceResponse, 10).encode(ProduceResponse(responses=[topic] * topics))
    assert finder.find(body, 0, len(body), 3 * topics + 5) == len(body) - 1
    assert finder.elements_left == 5
    for elements_max in range(3 * topics):
        assert (
            FieldFinder(the_offset(ProduceResponse, 10)).find(body, 0, len(body), elements_max) == INCOMPLETE
        )


def test_a_response_with_the_same_length_and_another_shape_is_scanned_and_replaces_the_known_one() -> None:
    finder = FieldFinder(the_offset(ProduceResponse, 10))
    plain, failed = produced(1, name="orders"), produced(1, name="ord", message="abc")
    assert len(plain) == len(failed)
    for body in [plain, plain, plain, failed, failed, failed, plain]:
        assert finder.find(body, 0, len(body)) == len(body) - 1


def test_no_more_shapes_are_kept_than_short_bodies_have_lengths() -> None:
    finder = FieldFinder(the_offset(ProduceResponse, 10))
    for size in [*range(2000), *range(2000)]:
        body = produced(0, message="x" * size)
        assert finder.find(body, 0, len(body)) == len(body) - 1
    assert max(finder._shapes) == SHAPE_BYTES_MAX
    assert len(finder._shapes) <= SHAPE_BYTES_MAX
