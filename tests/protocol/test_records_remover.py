"""Fetch responses without records, in every chunking, against kio, kafka-python and Kafka's own bytes."""

from __future__ import annotations

import base64
import json
import tracemalloc
import warnings
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol import kio_side
from tests.protocol.generate import each_version, messages, sample
from tests.protocol.plain import kio_bytes, read_by_kafka_python
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError, TooLargeError
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.records_remover import RecordsRemover, whole_remover
from weir.protocol.values import schema_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas as it was done once
    from kafka.protocol.consumer.fetch import FetchResponse as KafkaPythonFetchResponse
from collections.abc import Iterable

from weir.protocol.values import Message

DATA: Final = Path(__file__).parent / "data"
FETCH_KEY: Final = 1
VERSIONS: Final = list(schema_of(FetchResponse).versions)
EVERY: Final[list[tuple[type[Message], int]]] = [(FetchResponse, version) for version in VERSIONS]
IN_KIO: Final = [pair for pair in EVERY if kio_side.kio_class(FETCH_KEY, "response", pair[1]) is not None]
KAFKA_SAMPLES: Final[dict[str, str]] = json.loads((DATA / "kafka_encodings.json").read_text())["messages"][
    "FetchResponse"
]["sample"]
"""By version: what Kafka's own classes write for a response with something in every field, unknown tagged
fields too. The records are the seven letters of "records".
"""
BATCHES: Final = [
    base64.b64decode(one["batch"]) for one in json.loads((DATA / "packed_batches.json").read_text())
]
"""Batches that real producers have packed."""
RECORDS: Final = [None, b"", b"r", bytes(20_000), *BATCHES]
UNBOUNDED: Final = 2**31
CUTS: Final = st.lists(st.integers(0, 60_000), max_size=12)


def fed(version: int, body: bytes, cuts: Iterable[int], kept_bytes_max: int = UNBOUNDED) -> RecordsRemover:
    remover = RecordsRemover(version, kept_bytes_max=kept_bytes_max)
    feed(remover, body, cuts)
    return remover


def feed(remover: RecordsRemover, body: bytes, cuts: Iterable[int]) -> None:
    """Feed the body in pieces, each among bytes that are not the body's."""
    for start, stop in pairwise([0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]):
        before = start % 7
        remover.feed(b"\xff" * before + body[start:stop] + b"\xff" * 9, before, before + stop - start)


def outcome(version: int, body: bytes, cuts: Iterable[int]) -> bytes | None:
    """Return the body without records, or None for a ProtocolError, as the function for whole bodies does."""
    whole = bytearray()
    try:
        whole_remover(version)(b"\xff" + body + b"\xff", 1, 1 + len(body), UNBOUNDED, whole, UNBOUNDED)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            fed(version, body, cuts).body()
        return None
    assert fed(version, body, cuts).body() == whole
    return bytes(whole)


def emptied(value: FetchResponse) -> FetchResponse:
    """Return a copy whose records are empty where they are not null."""
    copy = deepcopy(value)
    for topic in copy.responses:
        for partition in topic.partitions:
            partition.records = None if partition.records is None else b""
    return copy


def with_batches(data: st.DataObject, version: int, *, tame: bool) -> FetchResponse:
    """Draw a response, some of whose records are what producers have packed."""
    value: FetchResponse = data.draw(messages(FetchResponse, version, tame=tame))
    for topic in value.responses:
        for partition in topic.partitions:
            partition.records = RECORDS[data.draw(st.integers(0, len(RECORDS) - 1))]
    return value


def sized(version: int, record_bytes: int, partitions: int = 1) -> bytes:
    """Return a response with so many bytes of records in each partition of one topic."""
    data = FetchResponse.PartitionData(partition_index=1, high_watermark=7, records=bytes(record_bytes))
    topic = FetchResponse.FetchableTopicResponse(partitions=[data] * partitions)
    return codec(FetchResponse, version).encode(FetchResponse(responses=[topic]))


# What is left


@settings(max_examples=2)
@given(data=st.data(), cuts=CUTS)
@each_version(IN_KIO)
def test_without_records_a_fetch_response_is_as_kio_writes_it_with_empty_records(
    message: type[Message], version: int, data: st.DataObject, cuts: list[int]
) -> None:
    value = with_batches(data, version, tame=True)
    assert fed(version, kio_bytes(value, version), cuts).body() == kio_bytes(emptied(value), version)


@settings(max_examples=2)
@given(data=st.data(), cuts=CUTS)
@each_version(EVERY)
def test_without_records_a_fetch_response_has_its_other_fields_as_kafka_python_reads_them(
    message: type[Message], version: int, data: st.DataObject, cuts: list[int]
) -> None:
    value = with_batches(data, version, tame=True)
    body = codec(FetchResponse, version).encode(value)
    expected = read_by_kafka_python(KafkaPythonFetchResponse, body, version)
    for topic in expected["responses"]:
        for partition in topic["partitions"]:
            partition["records"] = None if partition["records"] is None else b""
    left = bytes(fed(version, body, cuts).body())
    assert read_by_kafka_python(KafkaPythonFetchResponse, left, version) == expected


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_removed_from_a_fetch_response_of_kafkas_own_classes_cut_anywhere(version: int) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES[str(version)])
    records, empty = (b"\x08records", b"\x01") if version >= 12 else (b"\0\0\0\x07records", bytes(4))
    assert body.count(records) == 1
    expected = body.replace(records, empty)
    for cut in range(len(body) + 1):
        assert fed(version, body, [cut]).body() == expected
    assert fed(version, body, range(len(body))).body() == expected, "byte by byte"


@in_one_test
@pytest.mark.parametrize(
    ("length", "empty"),
    [(b"\x83\x00", b"\1"), (b"\x83\x80\x80\x80\x00", b"\1"), (b"\x80\x80\x80\x80\x00", b"\0")],
)
def test_records_are_removed_though_their_length_has_more_bytes_than_it_needs(
    length: bytes, empty: bytes
) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES["12"])
    longer = body.replace(b"\x08records", length + b"re" * empty[0])
    for cut in range(len(longer) + 1):
        assert fed(12, longer, [cut]).body() == body.replace(b"\x08records", empty)


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_null_records_stay_null(version: int) -> None:
    parts = [FetchResponse.PartitionData(records=records) for records in (None, b"r", None, b"")]
    value = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=parts)])
    left = bytes(fed(version, codec(FetchResponse, version).encode(value), ()).body())
    decoded = read_by_kafka_python(KafkaPythonFetchResponse, left, version)
    assert [part["records"] for part in decoded["responses"][0]["partitions"]] == [None, b"", None, b""]


# How much is kept


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("behind", [b"", b"behind"])
def test_no_more_is_kept_of_a_fetch_response_than_allowed(version: int, behind: bytes) -> None:
    body, left = sized(version, 20, partitions=2) + behind, sized(version, 0, partitions=2) + behind
    for cut in range(len(body) + 1):
        assert fed(version, body, [cut], len(left)).body() == left
        for kept_bytes_max in (0, 4, len(left) - 7, len(left) - 6, len(left) - 1):
            remover = RecordsRemover(version, kept_bytes_max=kept_bytes_max)
            with pytest.raises(TooLargeError, match=f"more than {kept_bytes_max} bytes"):
                feed(remover, body, [cut])
            with pytest.raises(ProtocolError):
                remover.feed(body, 0, 1)
            with pytest.raises(ProtocolError):
                remover.body()


def peak_bytes(remover: RecordsRemover, first: bytes, chunk: bytes, count: int) -> int:
    """Return the most memory that a remover takes for a chunk that comes again and again behind `first`."""
    tracemalloc.start()
    try:
        remover.feed(first, 0, len(first))
        for _ in range(count):
            remover.feed(chunk, 0, len(chunk))
    except TooLargeError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@in_one_test
@pytest.mark.parametrize("version", [3, 11, 12, 18])
def test_records_that_are_removed_take_no_memory(version: int) -> None:
    body, chunk = sized(version, 64_000_000), bytes(64_000)
    remover = RecordsRemover(version, kept_bytes_max=1000)
    assert peak_bytes(remover, body[:100], chunk, 999) < 20_000
    remover.feed(chunk, 0, len(body) - 100 - 999 * len(chunk))
    assert remover.body() == sized(version, 0)


@in_one_test
@pytest.mark.parametrize(
    ("version", "claim"),
    [
        pytest.param(11, bytes(10) + b"\x7f\xff\xff\xff", id="inflexible topics"),
        pytest.param(12, bytes(10) + b"\xff\xff\xff\xff\x07", id="flexible topics"),
        pytest.param(12, bytes(10) + b"\x01\xff\xff\xff\xff\x07", id="tagged fields"),
        pytest.param(12, bytes(10) + b"\x01\x01\x05\xff\xff\xff\xff\x07", id="bytes of a tagged field"),
    ],
)
def test_a_fetch_response_that_claims_more_than_can_be_kept_is_refused(version: int, claim: bytes) -> None:
    chunk = bytes([1, 1, 0] * 500) if version == 12 else bytes(1_500)
    remover = RecordsRemover(version, kept_bytes_max=20_000)
    assert peak_bytes(remover, claim, chunk, 100) < 100_000
    assert not remover.complete
    with pytest.raises(ProtocolError):
        remover.feed(chunk, 0, len(chunk))


# Bytes that end early, or lie


@each_version(EVERY)
def test_a_truncated_fetch_response_never_becomes_complete(message: type[Message], version: int) -> None:
    body = codec(message, version).encode(sample(message, version))
    for end in range(len(body)):
        remover = fed(version, body[:end], [end // 2])
        assert not remover.complete
        with pytest.raises(ProtocolError, match=f"FetchResponse v{version}: .* ends too early"):
            remover.body()


@pytest.mark.parametrize(
    ("version", "length", "reason"),
    [
        (11, b"\xff\xff\xff\xfe", "records has a negative length"),
        (12, b"\xff\xff\xff\xff\x08", "records claims more than a message can hold"),
        (12, b"\xff\xff\xff\xff\xff\x00", "records has a varint longer than five bytes"),
    ],
)
def test_records_with_a_length_that_cannot_be_are_a_lasting_error(
    version: int, length: bytes, reason: str
) -> None:
    body = sized(version, 0)
    tail = b"\x01\0\0\0" if version == 12 else bytes(4)
    assert body.endswith(tail)
    lying = body.removesuffix(tail) + length
    for cut in range(len(body) - len(tail), len(lying) + 1):
        remover = RecordsRemover(version, kept_bytes_max=UNBOUNDED)
        with pytest.raises(ProtocolError, match=reason):
            feed(remover, lying, [cut])
        with pytest.raises(ProtocolError):
            remover.feed(body, 0, len(body))
        assert not remover.complete
