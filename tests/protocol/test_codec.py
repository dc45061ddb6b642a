"""The codec: every message in every version there and back, prefixes, what cannot be said, what is not
Kafka's."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol.generate import each_version, every_version, messages, sample, version_id
from weir.protocol.codec import codec
from weir.protocol.errors import EncodeError, ProtocolError
from weir.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    DescribeGroupsResponse,
    DescribeTopicPartitionsRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.protocol.values import Message

VERSIONS = every_version()
IDS = [version_id(*each) for each in VERSIONS]


@settings(max_examples=2)
@given(data=st.data())
@each_version(VERSIONS)
def test_every_value_survives_a_round_trip(message: type[Message], version: int, data: st.DataObject) -> None:
    value = data.draw(messages(message, version))
    encoded = codec(message, version).encode(value)
    assert codec(message, version).decode(encoded) == value


# --- What decode_prefix and encode_prefix leave alone


@in_one_test
@pytest.mark.parametrize(("message", "version"), VERSIONS, ids=IDS)
def test_every_prefix_is_the_beginning_of_the_whole(message: type[Message], version: int) -> None:
    subject, value = codec(message, version), sample(message, version)
    whole = subject.encode(value)
    for slot in subject.layout.fields:
        decoded, end = subject.decode_prefix(b"head" + whole + b"tail", 4, 4 + len(whole), slot.name)
        assert getattr(decoded, slot.name) == getattr(value, slot.name)
        assert subject.encode_prefix(decoded, slot.name) == whole[: end - 4]
    for slot in subject.layout.tagged:
        with pytest.raises(ValueError, match="has no"):
            subject.encode_prefix(value, slot.name)


@in_one_test
@pytest.mark.parametrize(("message", "version"), VERSIONS, ids=IDS)
def test_every_suffix_is_the_end_of_the_whole(message: type[Message], version: int) -> None:
    subject, value = codec(message, version), sample(message, version)
    whole, names = subject.encode(value), [slot.name for slot in subject.layout.fields]
    for before, since in zip(["", *names], [*names, ""], strict=True):
        _, start = subject.decode_prefix(whole, 0, len(whole), before) if before else (None, 0)
        decoded = subject.decode_suffix(whole + b"behind", start, len(whole), since)
        for name in (*names[names.index(since) if since else len(names) :], "unknown_tagged_fields"):
            assert getattr(decoded, name) == getattr(value, name)
        assert subject.encode_suffix(decoded, since) == whole[start:]
        if start < len(whole):
            with pytest.raises(ProtocolError):
                subject.decode_suffix(whole + b"\0", start, len(whole) + 1, since)


@each_version(every_version())
def test_a_truncated_message_and_one_with_a_byte_more_are_errors(
    message: type[Message], version: int
) -> None:
    subject = codec(message, version)
    whole = subject.encode(sample(message, version))
    for data in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(ProtocolError):
            subject.decode(data)


# --- Every kind of buffer, and only the part of it that is meant


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_a_message_is_read_from_the_middle_of_any_buffer(
    buffer: type[bytes | bytearray | memoryview],
) -> None:
    for message, version in ((MetadataResponse, 12), (FetchResponse, 4), (ProduceRequest, 9)):
        value = sample(message, version)
        whole = codec(message, version).encode(value)
        data = buffer(b"before" + whole + b"after")
        decoded = codec(message, version).decode(data, 6, 6 + len(whole))
        assert decoded == value
    with pytest.raises(ValueError, match="not within"):
        codec(MetadataResponse, 12).decode(b"", 1)


# --- Versions


def test_the_error_names_a_field_inside_structs() -> None:
    partition = DescribeGroupsResponse.DescribedGroup(members=[])
    partition.members = [DescribeGroupsResponse.DescribedGroupMember(group_instance_id="static")]
    partition.authorized_operations = 3
    with pytest.raises(EncodeError) as caught:
        codec(DescribeGroupsResponse, 0).encode(DescribeGroupsResponse(groups=[partition]))
    assert caught.value.field == "groups.authorized_operations"


def test_unknown_tags_lie_between_known_ones_and_need_a_flexible_version() -> None:
    value = ApiVersionsResponse(
        finalized_features_epoch=5, zk_migration_ready=True, unknown_tagged_fields=((2000, b"xy"),)
    )
    encoded = codec(ApiVersionsResponse, 3).encode(value)
    assert codec(ApiVersionsResponse, 3).decode(encoded) == value
    assert encoded.endswith(b"\x03" + b"\x01\x08\0\0\0\0\0\0\0\5" + b"\x03\x01\x01" + b"\xd0\x0f\x02xy")
    with pytest.raises(EncodeError, match="field unknown_tagged_fields"):
        codec(ApiVersionsResponse, 0).encode(value)
    for tags in (((1, b""),), ((9, b""), (9, b"")), ((-1, b""),), ((1 << 31, b""),)):
        with pytest.raises(EncodeError, match="field unknown_tagged_fields"):
            codec(ApiVersionsResponse, 3).encode(ApiVersionsResponse(unknown_tagged_fields=tags))


def test_a_tag_that_a_newer_version_knows_is_kept_as_unknown() -> None:
    newer = codec(ProduceResponse, 10).encode(
        ProduceResponse(node_endpoints=[ProduceResponse.NodeEndpoint(node_id=1, host="a", port=2)])
    )
    older = codec(ProduceResponse, 9).decode(newer)
    assert older.node_endpoints == []
    assert [tag for tag, _ in older.unknown_tagged_fields] == [0]
    assert codec(ProduceResponse, 9).encode(older) == newer


def test_values_of_the_wrong_type_or_range_are_errors_that_name_the_field() -> None:
    wrong: list[tuple[Message, str]] = [
        (CreateTopicsRequest(timeout_ms=1 << 31), "timeout_ms"),
        (CreateTopicsRequest(topics=cast("Any", 5)), "topics"),
        (CreateTopicsRequest(topics=[cast("Any", MetadataRequest())]), "topics"),
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="x" * 0x8000)]), "topics.name"),
        (CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="\ud800")]), "topics.name"),
        (
            CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=cast("Any", 1))]),
            "topics.name",
        ),
        (
            CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(replication_factor=1 << 15)]),
            "topics.replication_factor",
        ),
    ]
    for value, field in wrong:
        with pytest.raises(EncodeError) as caught:
            codec(CreateTopicsRequest, 7).encode(cast("CreateTopicsRequest", value))
        assert (caught.value.field, caught.value.api, caught.value.version) == (
            field,
            "CreateTopicsRequest",
            7,
        )
    with pytest.raises(TypeError):
        codec(CreateTopicsRequest, 7).encode(cast("Any", MetadataRequest()))


# --- Bytes that are not Kafka's

TWO_BILLION = b"\x80\xa8\xd6\xb9\x07"  # as an unsigned varint

BAD = [
    # message, version, bytes, offset, reason
    (MetadataRequest, 0, b"\x7f\xff\xff\xff", 0, "array topics of 2147483647 in 0 bytes"),
    (MetadataRequest, 0, b"\xff\xff\xff\xff", 0, "array topics is null"),
    (MetadataRequest, 0, b"\xff\xff\xff\xfe", 0, "length -2 is negative"),
    (MetadataRequest, 0, b"\0\0\0\1\x80\x00", 4, "length -32768 is negative"),
    (MetadataRequest, 0, b"\0\0\0\1\xff\xff", 4, "string is null"),
    (MetadataRequest, 0, b"\0\0\0\1\0\5abc", 4, "string of 5 bytes, 3 left"),
    (MetadataRequest, 0, b"\0\0\0\1\0\3a\xffc", 7, "string is not UTF-8"),
    (MetadataRequest, 0, b"\0\0\0\0extra", 4, "5 bytes left over"),
    (MetadataRequest, 0, b"\0\0", 0, "ends within a length"),
    (MetadataRequest, 9, TWO_BILLION, 0, "array topics of 1999999999 in 0 bytes"),
    (MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x00", 0, "varint is longer than five bytes"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", 0, "varint is over 31 bits"),
    (MetadataRequest, 9, b"\x80\x80", 0, "ends within a varint"),
    (MetadataRequest, 9, b"\x01\1\0\0", 4, "ends within a varint"),
    (MetadataRequest, 9, b"\x01\1\0\0\x02\x07\x00\x07\x00", 7, "tag 7 after tag 7"),
    (MetadataRequest, 9, b"\x01\1\0\0\x02\x07\x00\x03\x00", 7, "tag 3 after tag 7"),
    (MetadataRequest, 9, b"\x01\1\0\0\x01\x07\x09x", 5, "tag 7 of 9 bytes, 1 left"),
    (
        ApiVersionsResponse,
        3,
        b"\0\0\1\0\0\0\0\1\1\x09\0\0\0\0\0\0\0\1\xff",
        18,
        "finalized_features_epoch leaves 1",
    ),
    (
        ProduceRequest,
        3,
        b"\xff\xff\0\1\0\0\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xfd",
        23,
        "length -3",
    ),
    (DescribeTopicPartitionsRequest, 0, b"\1\0\0\0\1", 5, "ends before a nullable struct"),
]


@pytest.mark.parametrize(("message", "version", "data", "offset", "reason"), BAD)
def test_bad_bytes_are_an_error_with_api_version_offset_and_reason(
    message: type[Message], version: int, data: bytes, offset: int, reason: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        codec(message, version).decode(data)
    error = caught.value
    assert (error.api, error.version, error.offset) == (message.__name__, version, offset)
    assert reason in error.reason
    for part in (message.__name__, f"v{version}", f"byte {offset}", reason):
        assert part in str(error)


def test_a_claim_of_two_billion_elements_costs_nothing() -> None:
    tracemalloc.start()
    for message, version in every_version():
        for huge in (b"\x7f\xff\xff\xff", TWO_BILLION):
            with contextlib.suppress(ProtocolError):
                codec(message, version).decode(huge * 20)
    tracemalloc.clear_traces()
    with pytest.raises(ProtocolError):
        codec(MetadataResponse, 9).decode(b"\0\0\0\0" + TWO_BILLION + b"x" * 1000)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_prefixes_are_held_to_the_same_rules() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataResponse v9 at byte 4: array brokers of 8 in 1 bytes"):
        codec(MetadataResponse, 9).decode_prefix(b"\0\0\0\0\x09\0", 0, 6, "brokers")
    broker = MetadataResponse.MetadataResponseBroker(node_id=1 << 31)
    with pytest.raises(EncodeError, match=r"MetadataResponse v9, field brokers.node_id: "):
        codec(MetadataResponse, 9).encode_prefix(MetadataResponse(brokers=[broker]), "brokers")
    broker = MetadataResponse.MetadataResponseBroker(port=1 << 31)
    with pytest.raises(EncodeError, match=r"field brokers.port: "):
        codec(MetadataResponse, 0).encode(MetadataResponse(brokers=[broker]))


def test_the_first_of_several_numbers_that_cannot_be_written_is_named() -> None:
    partition = MetadataResponse.MetadataResponsePartition(
        partition_index=cast("Any", "x"), leader_id=1 << 40
    )
    response = MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(partitions=[partition])])
    with pytest.raises(EncodeError) as caught:
        codec(MetadataResponse, 9).encode(response)
    assert caught.value.field == "topics.partitions.partition_index"
