"""Partitions of fetch responses, in every chunking, against kio, kafka-python and Kafka's own bytes."""

from __future__ import annotations

import json
import sys
import tracemalloc
import uuid
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol import kio_side
from tests.protocol.generate import each_version, messages, sample
from tests.protocol.plain import kio_bytes, plain, read_by_kafka_python
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.fetched_partitions import FetchedPartitions
from weir.protocol.scanning.topic_names import NAME_BYTES_MAX
from weir.protocol.values import schema_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python
    from kafka.protocol.consumer.fetch import FetchResponse as KafkaPythonFetchResponse
from collections.abc import Iterable, Mapping

from weir.protocol.values import Message

FETCH_KEY: Final = 1
VERSIONS: Final = list(schema_of(FetchResponse).versions)
EVERY: Final[list[tuple[type[Message], int]]] = [(FetchResponse, version) for version in VERSIONS]
IN_KIO: Final = [pair for pair in EVERY if kio_side.kio_class(FETCH_KEY, "response", pair[1]) is not None]
KAFKA_SAMPLES: Final[dict[str, str]] = json.loads(
    (Path(__file__).parent / "data" / "kafka_encodings.json").read_text()
)["messages"]["FetchResponse"]["sample"]
"""Version → bytes (hex) that Kafka's own classes write for a response with a value in every field, and
unknown tagged fields. All numbers are 77, and the records are the seven letters of "records".
"""
SAMPLE_ID: Final = uuid.UUID(int=1 << 100 | 7).bytes
CUTS: Final = st.lists(st.integers(0, 60_000), max_size=12)
SIZES: Final = (None, 0, 1, 126, 127, 128, 16_382, 16_383, 20_000)

Noted: TypeAlias = tuple[bytes, int, int, int, int]
"""(topic, partition, error_code, high_watermark, records_bytes)."""


class Scan:
    def __init__(self, version: int) -> None:
        self.noted: list[Noted] = []
        self.partitions = FetchedPartitions(version, lambda *noted: self.noted.append(noted))

    def feed(self, body: bytes, cuts: Iterable[int] = (), elements_max: int = sys.maxsize) -> Scan:
        """Feed the body in pieces, each among bytes that do not belong to the body."""
        for start, stop in pairwise([0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]):
            before = start % 7
            data = b"\xff" * before + body[start:stop] + b"\xff" * 9
            position, end = before, before + stop - start
            while True:
                position = self.partitions.feed(data, position, end, elements_max)
                if position == end:
                    break
        return self

    @property
    def head(self) -> tuple[int | None, int | None]:
        return self.partitions.error_code, self.partitions.session_id


def outcome(version: int, body: bytes, cuts: Iterable[int]) -> tuple[object, ...]:
    """Return the results of a scan, also if it ends with an error."""
    scan = Scan(version)
    try:
        scan.feed(body, cuts)
    except ProtocolError as error:
        return scan.noted, scan.head, error.offset, str(error)
    return scan.noted, scan.head, scan.partitions.complete


NO_TOPIC: Final = uuid.UUID(int=0)
"""The topic id that kafka-python reads as None."""


def expected(fields: Mapping[str, Any], version: int) -> list[Noted]:
    """Return the partitions of a response that is given as dicts."""
    return [
        (
            topic["topic"].encode() if version <= 12 else (topic["topic_id"] or NO_TOPIC).bytes,
            partition["partition_index"],
            partition["error_code"],
            partition["high_watermark"],
            len(partition["records"] or b""),
        )
        for topic in fields["responses"]
        for partition in topic["partitions"]
    ]


def expected_head(fields: Mapping[str, Any], version: int) -> tuple[int, int]:
    return (fields["error_code"], fields["session_id"]) if version >= 7 else (0, 0)


def drawn(data: st.DataObject, version: int) -> FetchResponse:
    """Draw a response that other libraries have types for, with records of several sizes."""
    value: FetchResponse = data.draw(messages(FetchResponse, version, tame=True))
    for topic in value.responses:
        for partition in topic.partitions:
            size = data.draw(st.sampled_from(SIZES))
            partition.records = None if size is None else bytes(size)
    return value


def response(*topics: str, partitions: int = 1, records: bytes | None = b"records") -> FetchResponse:
    return FetchResponse(
        error_code=9,
        session_id=5,
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=name,
                topic_id=uuid.UUID(bytes=name.encode().ljust(16, b"-")[:16]),
                partitions=[
                    FetchResponse.PartitionData(partition_index=index, high_watermark=70, records=records)
                    for index in range(partitions)
                ],
            )
            for name in topics
        ],
    )


def encoded(value: FetchResponse, version: int) -> bytes:
    if version < 7:
        value.error_code = value.session_id = 0
    return codec(FetchResponse, version).encode(value)


# The partitions of whole responses


@settings(max_examples=2)
@given(data=st.data(), cuts=CUTS)
@each_version(IN_KIO)
def test_the_partition_scan_finds_the_partitions_that_kio_has_written(
    message: type[Message], version: int, data: st.DataObject, cuts: list[int]
) -> None:
    value = drawn(data, version)
    scan = Scan(version).feed(kio_bytes(value, version), cuts)
    assert scan.partitions.complete
    assert scan.noted == expected(plain(value), version)
    assert scan.head == expected_head(plain(value), version)


@settings(max_examples=2)
@given(data=st.data(), cuts=CUTS)
@each_version(EVERY)
def test_the_partition_scan_finds_the_partitions_that_kafka_python_reads(
    message: type[Message], version: int, data: st.DataObject, cuts: list[int]
) -> None:
    body = codec(FetchResponse, version).encode(drawn(data, version))
    fields = read_by_kafka_python(KafkaPythonFetchResponse, body, version)
    scan = Scan(version).feed(body, cuts)
    assert scan.partitions.complete
    assert scan.noted == expected(fields, version)
    assert scan.head == expected_head(fields, version)


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_the_partition_scan_reads_responses_of_kafkas_own_classes_cut_anywhere(version: int) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES[str(version)])
    noted = [("käse".encode() if version <= 12 else SAMPLE_ID, 77, 77, 77, 7)]
    for cuts in ([], *([cut] for cut in range(len(body) + 1)), range(len(body))):
        scan = Scan(version).feed(body, cuts)
        assert scan.partitions.complete
        assert scan.noted == noted
        assert scan.head == ((77, 77) if version >= 7 else (0, 0))


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 126, 127, 128, 16_382, 16_383, 2_097_150, 2_097_151])
def test_the_partition_scan_reads_records_lengths_of_any_width(version: int, size: int) -> None:
    body = encoded(response("t", partitions=2, records=bytes(size)), version)
    assert [noted[-1] for noted in Scan(version).feed(body, [60, 70, 100]).noted] == [size, size]


# Pauses


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("elements_max", [0, 1, 2, 3, 7, 8, 100])
def test_the_partition_scan_visits_no_more_elements_than_allowed(version: int, elements_max: int) -> None:
    body = encoded(response("a", "b", partitions=3), version)
    elements = 2 + 6
    whole = Scan(version).feed(body).noted
    for cut in (0, len(body) // 2):
        scan, visited = Scan(version), 0
        for start, stop in ((0, cut), (cut, len(body))):
            position, calls = start, 0
            while position < stop:
                before = len(scan.noted)
                position = scan.partitions.feed(body, position, stop, elements_max)
                assert len(scan.noted) - before <= max(1, elements_max)
                visited += elements_max - scan.partitions.elements_left
                calls += 1
                assert calls <= elements + 1
        assert scan.noted == whole
        assert scan.partitions.complete
        assert visited == elements


@in_one_test
@pytest.mark.parametrize(
    ("version", "claim", "element"),
    [
        pytest.param(12, bytes(10) + b"\x01\xff\xff\xff\xff\x07", b"\x05\x00", id="tagged fields"),
        pytest.param(18, bytes(10) + b"\xff\xff\xff\xff\x07", bytes(16) + b"\x01\x00", id="topics"),
        pytest.param(3, bytes(4) + b"\x7f\xff\xff\xff", bytes(2 + 4), id="topics without name"),
    ],
)
def test_the_partition_scan_pauses_in_arrays_without_partitions(
    version: int, claim: bytes, element: bytes
) -> None:
    scan, body = Scan(version).partitions, claim + element * 1_000
    position = scan.feed(body, 0, len(body), 100)
    assert position == len(claim) + 100 * len(element)
    assert scan.feed(body, position, len(body), 500) == len(claim) + 600 * len(element)
    assert scan.elements_left == 0


# Memory


@in_one_test
@pytest.mark.parametrize("version", [0, 11, 12, 18])
def test_the_partition_scan_takes_little_memory(version: int) -> None:
    partitions = FetchedPartitions(version, lambda *_noted: None)
    body = encoded(response("t" * 100, partitions=1_000, records=bytes(10_000)), version)
    tracemalloc.start()
    for start in range(0, len(body), 64_000):
        partitions.feed(body, start, min(start + 64_000, len(body)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert partitions.complete
    assert peak < 20_000


@pytest.mark.parametrize("version", [12])
def test_the_partition_scan_keeps_no_name_longer_than_kafkas_strings(version: int) -> None:
    body = bytearray(encoded(response("t" * NAME_BYTES_MAX), version))
    name = body.index(b"t" * NAME_BYTES_MAX)
    for cut in (name - 2, name, name + 5):
        assert [len(noted[0]) for noted in Scan(version).feed(bytes(body), [cut]).noted] == [NAME_BYTES_MAX]
    assert body[name - 3 : name] == b"\x80\x80\x02", "the length plus one"
    body[name - 3] += 1
    with pytest.raises(ProtocolError, match=r"responses\.topic is longer than a name can be"):
        Scan(version).feed(bytes(body[:name]))


# Bytes that end early or are malformed


@each_version(EVERY)
def test_the_partition_scan_of_a_truncated_response_never_completes(
    message: type[Message], version: int
) -> None:
    for value in (sample(FetchResponse, version), response("a", "bé", partitions=2)):
        body = encoded(value, version)
        whole = Scan(version).feed(body).noted
        for end in range(len(body)):
            scan = Scan(version).feed(body[:end], [end // 2])
            assert not scan.partitions.complete
            assert scan.noted == whole[: len(scan.noted)]


@in_one_test
@pytest.mark.parametrize(
    ("version", "malformed", "reason"),
    [
        (3, bytes(4) + b"\xff\xff\xff\xff", "responses has a negative length"),
        (3, bytes(7) + b"\x01\xff\xff", "topic has a negative length"),
        (3, bytes(7) + b"\x01\x00\x00\xff\xff\xff\xff", "partitions has a negative length"),
        (3, bytes(7) + b"\x01\x00\x00\0\0\0\x01" + bytes(14) + b"\xff\xff\xff\xfe", "records has a negative"),
        (
            4,
            bytes(7) + b"\x01\x00\x00\0\0\0\x01" + bytes(22) + b"\xff\xff\xff\xfe",
            "aborted_transactions has",
        ),
        (12, bytes(10) + b"\x00", "responses is null"),
        (12, bytes(10) + b"\x02\x00", "topic is null"),
        (13, bytes(10) + b"\x02" + bytes(16) + b"\x00", "partitions is null"),
        (13, bytes(10) + b"\xff\xff\xff\xff\x08", "responses claims more than a message can hold"),
        (13, bytes(10) + b"\xff\xff\xff\xff\xff\x00", "responses has a varint longer than five bytes"),
        (
            13,
            bytes(10)
            + b"\x02"
            + bytes(16)
            + b"\x02"
            + bytes(30)
            + b"\x00"
            + bytes(4)
            + b"\xff\xff\xff\xff\x08",
            "records claims more than a message can hold",
        ),
        (13, bytes(10) + b"\x01\xff\xff\xff\xff\x08", r"\(tagged fields\) claims more"),
    ],
)
def test_lengths_that_cannot_be_are_a_lasting_error_of_the_partition_scan(
    version: int, malformed: bytes, reason: str
) -> None:
    for cut in range(len(malformed) + 1):
        scan = Scan(version)
        with pytest.raises(ProtocolError, match=reason):
            scan.feed(malformed, [cut])
        with pytest.raises(ProtocolError):
            scan.feed(bytes(50))
        assert scan.noted == []
        assert not scan.partitions.complete
