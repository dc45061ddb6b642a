"""Fetch requests that ask for as little as can be, as kio, kafka-python and Kafka's own bytes tell."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.protocol import kio_side
from tests.protocol.generate import each_version, messages
from tests.protocol.plain import kio_bytes, read_by_kafka_python
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import FetchRequest
from weir.protocol.scanning.least_fetch import ask_least
from weir.protocol.values import schema_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas as it was done once
    from kafka.protocol.consumer.fetch import FetchRequest as KafkaPythonFetchRequest
from weir.protocol.values import Message

FETCH_KEY: Final = 1
BEFORE: Final = b"header"
BEHIND: Final = b"next frame"
VERSIONS: Final = list(schema_of(FetchRequest).versions)
EVERY: Final[list[tuple[type[Message], int]]] = [(FetchRequest, version) for version in VERSIONS]
IN_KIO: Final = [pair for pair in EVERY if kio_side.kio_class(FETCH_KEY, "request", pair[1]) is not None]
KAFKA_SAMPLES: Final[dict[str, str]] = json.loads(
    (Path(__file__).parent / "data" / "kafka_encodings.json").read_text()
)["messages"]["FetchRequest"]["sample"]
"""By version: what Kafka's own classes write for a request with something in every field (77 in numbers)."""


def patched(version: int, body: bytes) -> bytes:
    """Return the body after it was patched among other bytes."""
    data = bytearray(BEFORE + body + BEHIND)
    stop = len(BEFORE) + len(body)
    assert ask_least(version)(data, len(BEFORE), stop, True) is True
    assert data.startswith(BEFORE)
    assert data[stop:] == BEHIND
    return bytes(data[len(BEFORE) : stop])


def least(value: FetchRequest, version: int) -> FetchRequest:
    """Return the request with the fields that `ask_least` is to change."""
    least_bytes = {"max_bytes": 1} if version >= 3 else {}
    return msgspec.structs.replace(value, max_wait_ms=0, min_bytes=0, **least_bytes)


def fields_end(version: int) -> int:
    """Return the bytes up to the last field that is patched, by Kafka's documentation of the API."""
    replica_id_bytes = 4 if version < 15 else 0
    return replica_id_bytes + (12 if version >= 3 else 8)


@settings(max_examples=2)
@given(data=st.data())
@each_version(IN_KIO)
def test_a_fetch_that_asks_for_the_least_is_as_kio_writes_it(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(FetchRequest, version, tame=True))
    assert patched(version, kio_bytes(value, version)) == kio_bytes(least(value, version), version)


@settings(max_examples=2)
@given(data=st.data())
@each_version(EVERY)
def test_a_fetch_that_asks_for_the_least_has_its_other_fields_as_kafka_python_reads_them(
    message: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(FetchRequest, version, tame=True))
    body = codec(FetchRequest, version).encode(value)
    expected = read_by_kafka_python(KafkaPythonFetchRequest, body, version)
    assert ("max_bytes" in expected) == (version >= 3)
    expected |= {"max_wait_ms": 0, "min_bytes": 0} | ({"max_bytes": 1} if version >= 3 else {})
    assert read_by_kafka_python(KafkaPythonFetchRequest, patched(version, body), version) == expected


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_of_kafkas_own_classes_is_patched_in_three_neighbouring_fields(version: int) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES[str(version)])
    end = fields_end(version)
    start = 4 if version < 15 else 0
    assert body[start:end] == bytes([0, 0, 0, 77]) * ((end - start) // 4)
    now = bytes(8) if version < 3 else bytes(11) + b"\1"
    assert patched(version, body) == body[:start] + now + body[end:]


@in_one_test
@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_fetch_is_patched_as_a_whole_or_not_at_all(version: int) -> None:
    body = bytes.fromhex(KAFKA_SAMPLES[str(version)])
    whole = patched(version, body)
    for end in range(len(body)):
        data = bytearray(BEFORE + body[:end] + BEHIND * 3)
        done = ask_least(version)(data, len(BEFORE), len(BEFORE) + end, False)
        assert done is (end >= fields_end(version))
        assert data == BEFORE + (whole if done else body)[:end] + BEHIND * 3
        if not done:
            with pytest.raises(ProtocolError, match=f"FetchRequest v{version} .* ends too early"):
                ask_least(version)(data, len(BEFORE), len(BEFORE) + end, True)
            assert data == BEFORE + body[:end] + BEHIND * 3
