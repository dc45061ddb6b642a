"""Counting a topic's bytes as they stream by, in every chunking, against the values that were encoded."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.generate import messages, version_id
from tests.wire.messages import id_of
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchResponse, MetadataResponse, ProduceRequest, ShareFetchResponse
from weir.protocol.scanning.topic_bytes import TopicBytes, names_topics
from weir.protocol.values import Message, schema_of

NAMING: Final[list[tuple[type[Message], int]]] = [
    (message, version)
    for message in (ProduceRequest, FetchResponse, ShareFetchResponse)
    for version in schema_of(message).versions
]
NAMING_ID: Final = [version_id(*pair) for pair in NAMING]
TOPICS: Final = ("a", "bé", "t" * 200)
WANTED: Final = frozenset(name.encode() for name in TOPICS)
NAMES: Final = {id_of(name).bytes: name.encode() for name in (*TOPICS[1:], "unwanted")}
"""The first topic's name is unknown at first."""


def produce(*sizes: tuple[str, int | None]) -> ProduceRequest:
    """A request with one partition, of so many bytes of records, for each pair."""
    return ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=0, records=None if size is None else bytes(size)
                    )
                ],
            )
            for name, size in sizes
        ]
    )


def fed(message: type[Message], version: int, body: bytes, cuts: list[int]) -> TopicBytes:
    """What is counted in a body that comes in these pieces."""
    counting = TopicBytes(message, version, WANTED, NAMES)
    for start, stop in pairwise([0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]):
        counting.feed(b"before" + body[start:stop] + b"behind", 6, 6 + stop - start)
    return counting


@pytest.mark.parametrize(("message", "version"), NAMING, ids=NAMING_ID)
@settings(max_examples=8)
@given(data=st.data(), cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_topic_bytes_are_counted_in_chunks_of_any_size(
    message: type[ProduceRequest | FetchResponse | ShareFetchResponse],
    version: int,
    data: st.DataObject,
    cuts: list[int],
) -> None:
    value = data.draw(messages(message, version))
    expected: Counter[bytes] = Counter()
    topics: list[Any] = value.topic_data if isinstance(value, ProduceRequest) else value.responses
    for topic in topics:
        name = data.draw(st.sampled_from((*TOPICS, "unwanted")))
        if message is ShareFetchResponse or version >= 13:
            topic.topic_id = id_of(name)
        else:
            setattr(topic, "name" if message is ProduceRequest else "topic", name)
        partitions = topic.partition_data if message is ProduceRequest else topic.partitions
        expected[name.encode()] += sum(len(one.records or b"") for one in partitions)
    counting = fed(message, version, codec(message, version).encode(value), cuts)
    assert counting.complete
    for topic_id in tuple(counting.unknown):
        counting.count_as(topic_id, TOPICS[0].encode())
    assert Counter(counting.counted) == Counter({name: expected[name] for name in WANTED})


def test_counting_topic_bytes_of_garbage_is_a_lasting_error() -> None:
    counting = TopicBytes(ProduceRequest, 8, WANTED)
    for _ in range(2):
        with pytest.raises(ProtocolError):
            counting.feed(b"\xff" * 100, 0, 100)
    assert not counting.counted


@pytest.mark.parametrize("version", [8, 9])
def test_counting_topic_bytes_visits_no_more_elements_after_a_pause_than_allowed(version: int) -> None:
    body = codec(ProduceRequest, version).encode(produce(*((name, 1) for name in TOPICS)))
    counting = TopicBytes(ProduceRequest, version, WANTED)
    position, counted, visited = 0, [], 0
    for _ in range(6):
        position = counting.feed(body, position, len(body), 1)
        counted.append(sum(counting.begun.values()))
        visited += 1 - counting.elements_left
    assert counting.complete
    assert counted == [0, 1, 1, 2, 2, 3], "a topic is one element, its partition is another"
    assert visited == 6


def test_newer_fetch_versions_and_share_fetches_name_topics_by_id_only() -> None:
    assert [v for v in schema_of(ProduceRequest).versions if not names_topics(ProduceRequest, v)] == [13]
    assert min(v for v in schema_of(FetchResponse).versions if not names_topics(FetchResponse, v)) == 13
    assert not names_topics(ShareFetchResponse, 1)
    with pytest.raises(ValueError, match="MetadataResponse v9 has no records"):
        TopicBytes(MetadataResponse, 9, WANTED)


def test_ids_beyond_a_limit_are_neither_kept_nor_counted() -> None:
    value = produce(*(("", 1) for _ in range(20_000)))
    for number, topic in enumerate(value.topic_data):
        topic.topic_id = UUID(int=number + 1)
    counting = TopicBytes(ProduceRequest, 13, WANTED)
    body = codec(ProduceRequest, 13).encode(value)
    counting.feed(body, 0, len(body))
    assert len(counting.unknown) == len(counting.counted) == 10_000
