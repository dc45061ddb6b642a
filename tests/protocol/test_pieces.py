"""Messages decoded and encoded in pieces: the same values, bytes and errors as at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from tests.protocol.generate import sample
from weir.protocol import schema
from weir.protocol.codec import codec
from weir.protocol.decoding import NUMBERS_MAX, TAGS_MAX
from weir.protocol.errors import EncodeError, OversizedError, ProtocolError
from weir.protocol.messages import CreateTopicsRequest, MetadataRequest, MetadataResponse
from weir.protocol.pieces import PIECE_BYTES
from weir.protocol.primitives import write_uvarint
from weir.protocol.values import message_type, schema_of

T = TypeVar("T")


def run(pieces: Generator[None, None, T]) -> tuple[T, int]:
    pauses = 0
    while True:
        try:
            next(pieces)
        except StopIteration as over:
            return over.value, pauses
        pauses += 1


def test_every_message_is_read_and_written_in_pieces_as_at_once() -> None:
    for name in schema.message_names():
        kind = message_type(name)
        for version in range(schema_of(kind).versions.min, schema_of(kind).versions.max + 1):
            codec_ = codec(kind, version)
            message = sample(kind, version)
            body = codec_.encode(message)
            assert run(codec_.encode_in_pieces(message))[0] == body, (name, version)
            assert run(codec_.decode_in_pieces(body))[0] == message, (name, version)
            lenient = run(codec_.decode_in_pieces(body + b"?", elements_max=1000))[0]
            assert lenient == codec_.decode_request(body + b"?"), (name, version)


def test_bytes_cut_anywhere_raise_the_same_error_in_pieces_as_at_once() -> None:
    codec_ = codec(CreateTopicsRequest, 7)
    body = codec_.encode(sample(CreateTopicsRequest, 7))
    for end in range(len(body)):
        with pytest.raises(ProtocolError) as at_once:
            codec_.decode(body, 0, end)
        with pytest.raises(ProtocolError) as in_pieces:
            run(codec_.decode_in_pieces(body, 0, end))
        assert str(in_pieces.value) == str(at_once.value)


@pytest.mark.parametrize(
    "message",
    [
        CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=3)]),  # type: ignore[arg-type]
        CreateTopicsRequest(topics=None),  # type: ignore[arg-type]
        CreateTopicsRequest(topics=[None]),  # type: ignore[list-item]
    ],
)
def test_values_of_a_wrong_type_raise_the_same_error_in_pieces_as_at_once(
    message: CreateTopicsRequest,
) -> None:
    with pytest.raises(EncodeError) as at_once:
        codec(CreateTopicsRequest, 7).encode(message)
    with pytest.raises(EncodeError) as in_pieces:
        run(codec(CreateTopicsRequest, 7).encode_in_pieces(message))
    assert in_pieces.value.field.split(".")[0] == at_once.value.field.split(".")[0] == "topics"


def test_reading_and_writing_pause_after_each_piece_at_any_depth() -> None:
    partition = MetadataResponse.MetadataResponsePartition(replica_nodes=[1, 2, 3])
    topic = MetadataResponse.MetadataResponseTopic(name="t", partitions=[partition] * 2000)
    codec_ = codec(MetadataResponse, 12)
    body, pauses = run(codec_.encode_in_pieces(MetadataResponse(topics=[topic])))
    partition_bytes = len(body) // 2000
    assert len(body) // (PIECE_BYTES + partition_bytes) - 1 <= pauses <= len(body) // PIECE_BYTES
    assert run(codec_.decode_in_pieces(body))[1] == pauses


def test_elements_of_all_arrays_together_are_bounded() -> None:
    topic = CreateTopicsRequest.CreatableTopic
    config = CreateTopicsRequest.CreatableTopicConfig(name="", value="")
    message = CreateTopicsRequest(topics=[topic(name="t", configs=[config] * 50)] * 10)
    codec_ = codec(CreateTopicsRequest, 7)
    body = codec_.encode(message)
    assert run(codec_.decode_in_pieces(body, elements_max=510))[0] == message
    with pytest.raises(OversizedError):
        run(codec_.decode_in_pieces(body, elements_max=509))


def test_numbers_of_a_request_are_bounded() -> None:
    topic = CreateTopicsRequest.CreatableTopic
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    codec_ = codec(CreateTopicsRequest, 7)
    for count, fits in ((NUMBERS_MAX, True), (NUMBERS_MAX + 1, False)):
        one = topic(name="t", assignments=[assignment(broker_ids=[1] * count)])
        body = codec_.encode(CreateTopicsRequest(topics=[one]))
        assert len(codec_.decode(body).topics) == 1  # a response may have any number
        if fits:
            codec_.decode_request(body)
        else:
            with pytest.raises(OversizedError):
                codec_.decode_request(body)


def test_tagged_fields_of_a_request_are_bounded() -> None:
    head = codec(MetadataRequest, 12).encode(MetadataRequest(topics=[]))[:-1]
    for count, fits in ((TAGS_MAX, True), (TAGS_MAX + 1, False)):
        body = bytearray(head)
        write_uvarint(body, count)
        body += b"\x05\x00" * count
        if fits:
            codec(MetadataRequest, 12).decode_request(body)
        else:
            with pytest.raises(OversizedError):
                codec(MetadataRequest, 12).decode_request(body)
