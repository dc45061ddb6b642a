"""Masked responses as this codec and kafka-python read them, in any chunks and with any pauses.

kio is no judge of masked responses: it refuses every tag that its schemas lack.
"""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.generate import every_version, messages, sample, version_id
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchResponse, ProduceResponse
from weir.protocol.scanning.endpoint_mask import UNKNOWN_TAG, EndpointMask, endpoints_tag
from weir.protocol.scanning.field_offsets import tag_section

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas as it was done once
    from kafka.protocol.consumer.fetch import FetchResponse as KafkaPythonFetchResponse
    from kafka.protocol.producer import ProduceResponse as KafkaPythonProduceResponse
from collections.abc import Iterable

from weir.protocol.values import Message

M = TypeVar("M", bound="Message")

ADDRESSES: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["addresses"]
WITH_ENDPOINTS: Final = [pair for pair in every_version() if endpoints_tag(*pair) is not None]
WITH_ENDPOINTS_ID: Final = [version_id(*pair) for pair in WITH_ENDPOINTS]
STREAMED: Final[list[tuple[type[Message], int]]] = [
    *((FetchResponse, version) for version in (16, 17, 18)),
    *((ProduceResponse, version) for version in (10, 11, 12, 13)),
]
"""What clients, not brokers, receive."""
STREAMED_ID: Final = [version_id(*pair) for pair in STREAMED]
GAP: Final = b"\x00another frame"
LONG: Final = "a host name whose length takes two bytes, " * 4


def tags_at(message: type[Message], version: int, body: bytes) -> int:
    found = tag_section(message, version)
    assert found is not None
    return found.locate(body, 0, len(body), True)


def chunked(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    bounds = [0, *sorted(cuts), len(body)]
    return [body[start:stop] for start, stop in pairwise(bounds)]


def masked(message: type[Message], version: int, chunks: list[bytes]) -> bytes:
    """Feed a response to an endpoint mask, each chunk in turns of few elements; return its bytes."""
    mask = EndpointMask(message, version)
    passed = bytearray()
    for index, chunk in enumerate(chunks):
        position = start = index % 3
        stop = start + len(chunk)
        data = bytearray(GAP[:start] + chunk + GAP)
        while position < stop:
            position = mask.feed(data, position, stop, index % 4)
        assert data[:start] == GAP[:start]
        assert data[stop:] == GAP
        passed += data[start:stop]
    assert mask.complete
    return bytes(passed)


def endpoints(message: type[Message]) -> list[object]:
    endpoint = vars(message)["NodeEndpoint"]
    return [
        endpoint(node_id=7, host="broker7", port=9092, rack=None),
        endpoint(node_id=8, host=LONG, port=9093, rack="r"),
    ]


def with_endpoints(message: type[M], version: int) -> M:
    """A response with two addresses, and no root tags that the schemas do not know."""
    value = sample(message, version)
    return msgspec.structs.replace(value, unknown_tagged_fields=(), node_endpoints=endpoints(message))


# Any bytes


def test_the_endpoint_mask_passes_fifty_megabytes_through_a_small_buffer() -> None:
    records = b"\xfa" * 50_000_000
    value = with_endpoints(FetchResponse, 17)
    value.responses[0].partitions[0].records = records
    body = codec(FetchResponse, 17).encode(value)
    expected = tags_at(FetchResponse, 17, body)
    mask = EndpointMask(FetchResponse, 17)
    buffer = bytearray(256 * 1024)
    for start in range(0, len(body), len(buffer)):
        chunk = body[start : start + len(buffer)]
        buffer[: len(chunk)] = chunk
        mask.feed(buffer, 0, len(chunk))
    assert mask.complete
    assert buffer[expected % len(buffer) + 1] == UNKNOWN_TAG


# Which tag


def test_endpoint_tags_are_kafkas_root_tags_with_addresses() -> None:
    expected = {
        (row["name"] + "Response", int(row["tagged_versions"].removesuffix("+"))): row["tag"]
        for row in ADDRESSES
        if row["tag"] is not None
    }
    first: dict[tuple[str, int], int] = {}
    for message, version in WITH_ENDPOINTS:
        tag = endpoints_tag(message, version)
        assert tag is not None
        if message.__name__ not in {name for name, _ in first}:
            first[message.__name__, version] = tag
    assert first == expected


@pytest.mark.parametrize(("message", "version"), WITH_ENDPOINTS, ids=WITH_ENDPOINTS_ID)
def test_no_known_tag_follows_the_endpoints_or_equals_the_masking_tag(
    message: type[Message], version: int
) -> None:
    tags = [slot.tag or 0 for slot in codec(message, version).layout.tagged]
    assert max(tags) == endpoints_tag(message, version)
    assert max(tags) < UNKNOWN_TAG < 128


# Neutralising


@pytest.mark.parametrize(("message", "version"), STREAMED, ids=STREAMED_ID)
def test_the_endpoint_mask_changes_the_tag_and_erases_the_value_at_any_cut(
    message: type[Message], version: int
) -> None:
    body = codec(message, version).encode(with_endpoints(message, version))
    tag = tags_at(message, version, body) + 1
    value = tag + 3  # behind the tag, and a length of two bytes
    expected = body[:tag] + bytes([UNKNOWN_TAG]) + body[tag + 1 : value] + bytes(len(body) - value)
    assert body[tag + 1] > 127 > body[tag + 2]
    assert int.from_bytes(body[tag + 2 : value]) << 7 | body[tag + 1] & 127 == len(body) - value
    for cut in range(len(body) + 1):
        assert masked(message, version, chunked(body, [cut])) == expected
    for size in (1, 2, 3, 7):
        assert masked(message, version, chunked(body, range(size, len(body), size))) == expected


@pytest.mark.parametrize(("message", "version"), STREAMED, ids=STREAMED_ID)
@given(data=st.data())
@settings(max_examples=7)
def test_masked_endpoints_are_an_unknown_tag_to_the_codec(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value: FetchResponse | ProduceResponse = data.draw(messages(message, version))
    value = msgspec.structs.replace(value, unknown_tagged_fields=())
    body = codec(message, version).encode(value)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=6))
    seen = codec(message, version).decode(masked(message, version, chunked(body, cuts)))
    tags = [tag for tag, _bytes in seen.unknown_tagged_fields]
    assert tags == ([UNKNOWN_TAG] if value.node_endpoints else [])
    assert not any(any(erased) for _tag, erased in seen.unknown_tagged_fields)
    without = msgspec.structs.replace(value, node_endpoints=[])
    assert msgspec.structs.replace(seen, unknown_tagged_fields=()) == without


def read_by_kafka_python(message: type[Message], version: int, body: bytes) -> tuple[list[str], str]:
    """The hosts of the endpoints, and everything else."""
    kind = KafkaPythonFetchResponse if message is FetchResponse else KafkaPythonProduceResponse
    read = kind.decode(body, version=version)
    hosts = [node.host for node in read.node_endpoints]
    read.node_endpoints = []
    return hosts, repr(read)


@pytest.mark.parametrize("behind", [(), ((1, b"news"),), ((1, b"news"), (300, b""))])
@pytest.mark.parametrize(("message", "version"), STREAMED, ids=STREAMED_ID)
@given(data=st.data())
@settings(max_examples=3)
def test_kafka_python_ignores_masked_endpoints_before_newer_tags(
    message: type[Message], version: int, behind: tuple[tuple[int, bytes], ...], data: st.DataObject
) -> None:
    drawn = data.draw(messages(message, version, tame=True))
    value = msgspec.structs.replace(drawn, node_endpoints=endpoints(message), unknown_tagged_fields=behind)
    body = codec(message, version).encode(value)
    hosts, rest = read_by_kafka_python(message, version, body)
    assert hosts == ["broker7", LONG]
    passed = masked(message, version, chunked(body, range(3, len(body), 3)))
    assert read_by_kafka_python(message, version, passed) == ([], rest)


def test_the_endpoint_mask_covers_repeated_endpoint_tags() -> None:
    """No broker sends two; a reader might take the last."""
    body = codec(FetchResponse, 16).encode(FetchResponse())
    body = body[:-1] + b"\x02" + b"\x00\x01\x01" + b"\x00\x01\x01"
    passed = masked(FetchResponse, 16, [body])
    assert passed.endswith(b"\x02\x7f\x01\x00\x7f\x01\x00")


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\x01\x80\x00\x01\x01", "longer than it needs"),
        (b"\x01\x80\x80\x00\x01\x01", "longer than it needs"),
        (b"\xff\xff\xff\xff\xff\x01", "longer than five"),
        (b"\xff\xff\xff\xff\x0f", "more than a message can hold"),
        (b"\x01\x05\xff\xff\xff\xff\x0f", "more than a message can hold"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_endpoint_mask_refuses_a_malformed_tag_section(tags: bytes, reason: str, size: int) -> None:
    body = codec(FetchResponse, 16).encode(FetchResponse())[:-1] + tags
    with pytest.raises(ProtocolError, match=f"FetchResponse v16 at byte .*{reason}"):
        masked(FetchResponse, 16, chunked(body, range(size, len(body), size)))


def test_the_endpoint_mask_passes_nothing_after_a_malformed_tag_section() -> None:
    body = bytearray(codec(FetchResponse, 16).encode(FetchResponse())[:-1] + b"\x02\x80\x00\x01\x01")
    mask = EndpointMask(FetchResponse, 16)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            mask.feed(body, 0, len(body))
    assert not mask.complete
