"""Messages and records that others wrote have no finding: Kafka's classes, kio, kafka-python, librdkafka."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.batches import batch, message_set
from tests.conformance.captures import answered, fetch, fetched, findings, produce, produced, sent
from tests.matrix import in_one_test
from tests.protocol import kio_side
from tests.protocol.generate import each_version
from tests.protocol.kio_samples import KNOWN, jobs
from tests.wire.frames import framed
from weir.conformance.verify.messages import form, read
from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.values import Message, message_type, schema_of

DATA: Final = Path(kio_side.__file__).parent / "data"
ENCODINGS: Final[dict[str, Any]] = json.loads((DATA / "kafka_encodings.json").read_text())["messages"]
"""Messages of Kafka's own classes (tests/protocol/test_kafka_encodings.py)."""
PACKED: Final[list[dict[str, Any]]] = json.loads((DATA / "packed_batches.json").read_text())
"""Batches of Java's and librdkafka's producers."""


def frame(message: type[Message], version: int, body: bytes) -> bytes:
    schema = schema_of(message)
    if schema.kind == "response":
        tags = b"\0" * response_header_version(schema.api_key, version)
        return framed(struct.pack(">i", 1) + tags + body)
    kind = request_header_version(schema.api_key, version)
    head = struct.pack(">hhi", schema.api_key, version, 1)
    return framed(head + (b"\0\3app" if kind else b"") + (b"\0" if kind == 2 else b"") + body)


def check(message: type[Message], version: int, body: bytes) -> None:
    schema = schema_of(message)
    assert schema.kind != "header"
    assert read(frame(message, version, body), form(schema.kind, schema.api_key, version)).defects == []


@in_one_test
@pytest.mark.parametrize("name", ENCODINGS)
def test_messages_of_kafkas_own_classes_have_no_finding(name: str) -> None:
    for kind in ("default", "sample"):
        for version, body in ENCODINGS[name][kind].items():
            check(message_type(name), int(version), bytes.fromhex(body))


@each_version(KNOWN)
def test_messages_of_kio_have_no_finding(message: type[Message], version: int) -> None:
    for job in jobs(message, version):
        theirs = kio_side.encode(job)
        assert isinstance(theirs, bytes)
        check(message, version, theirs)


@pytest.mark.parametrize(
    "one", PACKED, ids=[f"{one['producer']}-{one['records']}-{one['codec']}-{one['magic']}" for one in PACKED]
)
def test_batches_of_java_and_librdkafka_have_no_finding(one: dict[str, Any]) -> None:
    records = base64.b64decode(one["batch"])
    version = {0: 1, 1: 2, 2: 9}[one["magic"]]
    assert findings(sent(produce(records, version)), answered(produced(version))) == []
    version = {0: 1, 1: 3, 2: 11}[one["magic"]]
    assert findings(sent(fetch(version)), answered(fetched(records, version))) == []


def test_batches_of_kafka_python_have_no_finding() -> None:
    for codec in (0, 1):
        for version, records in (
            (9, batch(500, codec)),
            (9, batch(3, codec, producer=5, epoch=0, sequence=0)),
            (2, message_set(1, 5, codec)),
            (1, message_set(0, 5, codec)),
        ):
            assert findings(sent(produce(records, version)), answered(produced(version))) == []
