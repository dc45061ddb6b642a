"""The topics that a fetch names, found without decoding it; names that no topic can have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.generate import messages
from tests.wire.messages import id_of, identity
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchRequest, ProduceRequest
from weir.protocol.scanning.topic_bytes import TopicBytes
from weir.protocol.scanning.topic_names import NAME_BYTES_MAX, topics_in
from weir.protocol.values import schema_of


class Asked:
    """Wanted topics that count how often they are asked for."""

    def __init__(self) -> None:
        self.times = 0

    def __contains__(self, _name: object) -> bool:
        self.times += 1
        return False

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def __len__(self) -> int:
        return 0


def body(message: FetchRequest | ProduceRequest, version: int) -> bytes:
    return codec(type(message), version).encode(message)


@pytest.mark.parametrize("version", list(schema_of(FetchRequest).versions))
@settings(max_examples=8)
@given(data=st.data())
def test_the_topic_scan_finds_the_topics_that_decoding_finds(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(messages(FetchRequest, version))
    names = {topic.topic.encode() for topic in message.topics} - {b""}
    known, unknown = dict[bytes, bytes](), set[bytes]()
    if version >= 13:
        ids = {topic.topic_id.bytes for topic in message.topics}
        known = {one: one.hex().encode() for one in ids if data.draw(st.booleans())}
        names = set(known.values())
    wanted = names | {b"another"} if data.draw(st.booleans()) else {b"another"}
    encoded = body(message, version)
    find = topics_in(FetchRequest, version, "topics")
    assert find(b"x" + encoded, 1, 1 + len(encoded), wanted, known, unknown) == names & wanted
    assert version < 13 or unknown == ids - known.keys()


@pytest.mark.parametrize("version", list(schema_of(FetchRequest).versions))
def test_the_topic_scan_of_a_cut_request_is_an_error(version: int) -> None:
    topic = FetchRequest.FetchTopic(**identity("topic", version))
    encoded = body(FetchRequest(topics=[topic]), version)
    find = topics_in(FetchRequest, version, "topics")
    cut = encoded.index(id_of("topic").bytes if version >= 13 else b"topic") + 3
    with pytest.raises(ProtocolError):
        find(encoded, 0, cut, {b"topic"}, {}, set())


def test_a_topic_name_longer_than_kafkas_strings_is_not_kept() -> None:
    """A varint may claim 2 GB: what comes of it would have been kept, up to a frame's 100 MB."""
    name = "t" * (NAME_BYTES_MAX + 1)
    short = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name=name[1:], partition_data=[])])
    encoded = bytearray(body(short, 9))
    at = encoded.index(b"t" * NAME_BYTES_MAX)
    assert encoded[at - 3 : at] == b"\x80\x80\x02"  # one more than it is long
    TopicBytes(ProduceRequest, 9, frozenset()).feed(bytes(encoded), 0, len(encoded))
    encoded[at - 3] += 1
    counting = TopicBytes(ProduceRequest, 9, frozenset())
    with pytest.raises(ProtocolError, match=r"topic_data\.name is longer than a name can be"):
        counting.feed(bytes(encoded), 0, at)


def test_a_topic_name_is_read_once_for_many_partitions() -> None:
    """32 KB, and 30,000 partitions of one byte, took 0.6 s on the loop."""
    partitions = [ProduceRequest.PartitionProduceData(records=b"r")] * 1000
    topic = ProduceRequest.TopicProduceData(name="t" * 1000, partition_data=partitions)
    encoded = body(ProduceRequest(topic_data=[topic, topic]), 9)
    asked = Asked()
    counting = TopicBytes(ProduceRequest, 9, asked)
    counting.feed(encoded, 0, len(encoded))
    assert counting.complete
    assert asked.times == 2
