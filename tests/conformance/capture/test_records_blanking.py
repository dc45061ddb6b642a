"""Blanked captures have no payload of a record, and all else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.capture.conversation import Parts, redacted
from tests.wire.frames import framed, request, response
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Side
from weir.protocol import messages

M: Any = messages
PAYLOAD = b"a record that must not be recorded"


def batch(payload: bytes = PAYLOAD, base: int = 5) -> bytes:
    """A record batch (magic 2) as Kafka's documentation lays it out: 61 bytes, then records."""
    behind = b"\0\0\0\1\2\1\2\3\4\0\0\0\0\0\0" + b"\7" * 16 + b"\3" * 14 + b"\0\0\0\1" + payload
    return base.to_bytes(8, "big") + len(behind).to_bytes(4, "big") + behind


def old_message(magic: int, payload: bytes = PAYLOAD) -> bytes:
    """A message of magic 0 or 1: offset, size, CRC, magic, attributes, for 1 a timestamp, then key and
    value.
    """
    behind = b"\1\2\3\4" + bytes([magic, 0]) + b"\7" * (8 * magic) + payload
    return b"\0" * 8 + len(behind).to_bytes(4, "big") + behind


def produce(records: bytes, version: int) -> bytes:
    """A produce request with these records twice."""
    kind = M.ProduceRequest
    partition = kind.PartitionProduceData(records=records)
    return request(
        kind(
            acks=1, timeout_ms=1, topic_data=[kind.TopicProduceData(name="t", partition_data=[partition] * 2)]
        ),
        version,
    )


def fetched(records: bytes, version: int) -> bytes:
    """A fetch response with these records twice."""
    kind = M.FetchResponse
    partition = kind.PartitionData(records=records)
    return response(
        kind(responses=[kind.FetchableTopicResponse(topic="t", partitions=[partition] * 2)]), version
    )


RECORDS = {
    "batch": batch() + batch(base=6),
    "magic 0": old_message(0) * 2,
    "magic 1": old_message(1) * 2,
    "cut": batch() + batch()[:-5],
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
def test_payloads_become_zeros_and_heads_stay(name: str, chunk: int) -> None:
    records = RECORDS[name]
    parts: Parts = [
        (Side.CLIENT, produce(records, 3)),
        (Side.CLIENT, request(M.FetchRequest(), 4, 2)),
        (Side.SERVER, response(M.ProduceResponse(), 3)),
        (Side.SERVER, fetched(records, 4).replace(b"\0\0\0\1", b"\0\0\0\2", 1)),
    ]
    found = redacted(Redaction(records=True), parts, chunk)
    for side in Side:
        sent = b"".join(data for by, data in parts if by is side)
        expected = sent.replace(PAYLOAD, bytes(len(PAYLOAD))).replace(PAYLOAD[:-5], bytes(len(PAYLOAD) - 5))
        assert found[side] == expected


@pytest.mark.parametrize("version", range(3, 13))
def test_payloads_of_every_version_of_produce_become_zeros(version: int) -> None:
    sent = produce(batch(), version)
    found = redacted(Redaction(records=True), [(Side.CLIENT, sent)], 100)[Side.CLIENT]
    assert found == sent.replace(PAYLOAD, bytes(len(PAYLOAD)))


@given(st.binary(max_size=300), st.integers(1, 80))
def test_records_that_are_no_batches_lose_all_bytes_or_keep_only_heads(records: bytes, chunk: int) -> None:
    sent = produce(records, 7)
    found = redacted(Redaction(records=True), [(Side.CLIENT, sent)], chunk)[Side.CLIENT]
    assert len(found) == len(sent)
    assert all(now in (before, 0) for now, before in zip(found, sent, strict=True))


def test_a_malformed_request_becomes_zeros_behind_its_header() -> None:
    sent = produce(batch(), 9)
    malformed = framed(sent[4:30] + b"\xff" * 20 + PAYLOAD * 3)
    found = redacted(Redaction(records=True), [(Side.CLIENT, malformed)])[Side.CLIENT]
    assert len(found) == len(malformed)
    assert PAYLOAD not in found


@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_a_malformed_header_of_a_produce_request_becomes_filler(chunk: int) -> None:
    sent = produce(batch(), 9)
    head = sent[4:17]  # up to the end of the client-id "app"
    malformed = framed(head + b"\xff" * 6 + PAYLOAD)  # a number of tags with too many bytes
    found = redacted(Redaction(records=True), [(Side.CLIENT, malformed + sent)], chunk)[Side.CLIENT]
    assert len(found) == len(malformed + sent)
    assert PAYLOAD not in found
    assert found[len(malformed) :][:17] == sent[:17]


def test_an_unknown_version_of_produce_becomes_filler() -> None:
    sent = framed(b"\0\0\0\x63\0\0\0\7" + PAYLOAD)
    found = redacted(Redaction(records=True), [(Side.CLIENT, sent)])[Side.CLIENT]
    assert found == framed(b"\0\0\0\x63\0\0\0\7" + b"x" * len(PAYLOAD))


def test_bulk_requests_are_not_held() -> None:
    sent = produce(batch(PAYLOAD * 100_000), 7)
    redaction = Redaction(records=True)
    found = redacted(redaction, [(Side.CLIENT, sent[:-1])], 65_536)[Side.CLIENT]
    assert len(found) == len(sent) - 1
    assert PAYLOAD not in found
