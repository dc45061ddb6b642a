"""Finding the records of produce requests, in all versions, against the values that were encoded."""

from __future__ import annotations

import uuid
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.protocol.codec import codec
from weir.protocol.messages import ProduceRequest
from weir.protocol.scanning.produced_records import records_in
from weir.protocol.values import schema_of

VERSIONS: Final = list(schema_of(ProduceRequest).versions)
NO_LIMIT: Final = 1000
Records = st.none() | st.binary(max_size=300)
Topics = st.lists(st.lists(Records, max_size=4), max_size=4)


def body_of(version: int, topics: list[list[bytes | None]]) -> bytes:
    """A request's body; each topic's name is its number."""
    return codec(ProduceRequest, version).encode(
        ProduceRequest(
            transactional_id="t" if version >= 3 else None,
            acks=-1,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=str(number) if version < 13 else "",
                    topic_id=uuid.UUID(int=number + 1) if version >= 13 else uuid.UUID(int=0),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=records)
                        for index, records in enumerate(partitions)
                    ],
                )
                for number, partitions in enumerate(topics)
            ],
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(topics=Topics)
def test_all_record_batches_of_a_produce_request_are_found(
    version: int, topics: list[list[bytes | None]]
) -> None:
    data = bytearray(b"before" + body_of(version, topics))
    claimed, begun, partitions, first, spans = records_in(version)(data, 6, len(data), NO_LIMIT)
    assert (claimed, begun) == (len(topics), len(topics))
    assert partitions == sum(map(len, topics))
    assert [bytes(data[start:stop]) for start, stop in spans] == [
        records or b"" for partitions in topics for records in partitions
    ]
    assert (first > 0) == bool(topics)
    if topics and topics[0]:
        assert data[first : first + 4] == bytes(4)  # the index


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(topics=Topics, cut=st.integers(0, 5000), limit=st.integers(1, 6))
def test_record_batches_of_a_cut_produce_request_are_found_up_to_the_cut(
    version: int, topics: list[list[bytes | None]], cut: int, limit: int
) -> None:
    data = bytearray(body_of(version, topics))
    *_counts, whole = records_in(version)(data, 0, len(data), NO_LIMIT)
    claimed, begun, _partitions, _first, spans = records_in(version)(data, 0, cut % (len(data) + 1), limit)
    assert spans == whole[: len(spans)]
    assert len(spans) <= limit
    assert claimed in (0, len(topics))
    assert begun <= min(limit, len(topics))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scan_for_record_batches_bounds_its_work_on_empty_topics(version: int) -> None:
    data = bytearray(body_of(version, [[] for _ in range(2000)]))
    claimed, begun, partitions, _first, spans = records_in(version)(data, 0, len(data), 64)
    assert (claimed, begun, partitions, spans) == (2000, 64, 0, [])
