"""What Kafka's own message classes write and refuse to write (data/kafka_encodings.json, from both client
releases).

Per message: `default`, the bytes of a message in which nothing is set; `sample`, the bytes of one in which
everything is, tags unknown to Kafka included; `refused`, by field: of the versions asked for, those in which
Kafka refuses to write a message that has only this field set (null: an error).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.matrix import in_one_test
from tests.protocol.generate import every_version
from weir.protocol.codec import codec
from weir.protocol.errors import EncodeError
from weir.protocol.messages import Message
from weir.protocol.values import message_type, schema_of
from weir.protocol.versions import VersionRange, VersionSet

DATA: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "kafka_encodings.json").read_text()
)["messages"]


def test_recorded_kafka_encodings_cover_every_version() -> None:
    ours = {(message.__name__, str(version)) for message, version in every_version()}
    assert {(name, version) for name, found in DATA.items() for version in found["sample"]} == ours


@in_one_test
@pytest.mark.parametrize("name", DATA)
def test_a_message_with_nothing_set_has_kafkas_defaults(name: str) -> None:
    message = message_type(name)
    for version, expected in DATA[name]["default"].items():
        assert encoded(message(), int(version)) == expected, version


@in_one_test
@pytest.mark.parametrize("name", DATA)
def test_a_message_with_every_field_set_is_encoded_as_by_kafka(name: str) -> None:
    for version, expected in DATA[name]["sample"].items():
        subject = codec(message_type(name), int(version))
        assert subject.encode(subject.decode(bytes.fromhex(expected))).hex() == expected, version


@in_one_test
@pytest.mark.parametrize("name", DATA)
def test_fields_that_a_version_lacks_are_refused_or_dropped_as_by_kafka(name: str) -> None:
    message, samples = message_type(name), DATA[name]["sample"]
    for field, found in DATA[name]["refused"].items():
        newest = max(version for version in map(int, samples) if has(message, version, field))
        value = codec(message, newest).decode(bytes.fromhex(samples[str(newest)]))
        alone = message(**{field: getattr(value, field)})
        asked, refused = VersionSet.parse(found["asked"]), VersionSet.parse(found["refused"])
        ours = [version for version in schema_of(message).versions if encoded(alone, version) is None]
        assert [version for version in ours if version in asked] == members(refused), field


def has(message: type[Message], version: int, field: str) -> bool:
    return field not in [absent.name for absent in codec(message, version).layout.absent]


def members(versions: VersionSet) -> list[int]:
    return [version for part in versions.ranges for version in VersionRange(part.min, part.max)]


def encoded(value: Message, version: int) -> str | None:
    try:
        return codec(type(value), version).encode(value).hex()
    except EncodeError:
        return None
