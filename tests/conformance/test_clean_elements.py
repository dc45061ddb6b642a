"""Elements without defects are passed over quickly, with the same result as field by field."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest

from tests.conformance.scanners import scan_quickly_and_slowly
from tests.fuzz.work import steps
from tests.protocol.generate import each_version, every_version, sample
from tests.wire.frames import framed
from weir.conformance.verify.differences import MessageScanner
from weir.conformance.verify.messages import form, read
from weir.protocol.codec import codec
from weir.protocol.values import Message

STEPS_PER_BYTE: Final = 12
"""Maximum number of steps. Field by field, it takes about 30."""
COUNT: Final = 127 << 7
"""Number of topics, plus one, in a varint of two bytes."""
BODY: Final = b"\0\0\1\0\0\0\1"
"""A produce request's fields before its topics: no transactional id, acks, timeout."""
PRODUCE: Final = struct.pack(">hhi", 0, 9, 1) + b"\0\1a\0" + BODY


@each_version(every_version())
def test_both_scanners_find_the_same_defects(message: type[Message], version: int) -> None:
    subject = codec(message, version)
    for value in (sample(message, version), _three(sample(message, version))):
        data = subject.encode(value)
        found = scan_quickly_and_slowly(data, 0, subject.layout)
        assert (found.defects, found.complete, found.position) == ([], True, len(data))


def _three(value: Any) -> Any:
    """Return the value with the first element of each of its arrays three times."""
    if isinstance(value, list):
        return [_three(one) for one in value[:1] * 3]
    for name in getattr(value, "__struct_fields__", ()):
        field = getattr(value, name)
        if isinstance(field, list) or hasattr(field, "__struct_fields__"):
            setattr(value, name, _three(field))
    return value


@pytest.mark.parametrize(
    ("element", "rule"),
    [
        (b"\1\x81\0\0", "varint-not-minimal"),
        (b"\0\1\0", "null-not-allowed"),
        (b"\2\xff\1\0", "string-utf8"),
        (b"\1\1\2\5\0\5\0", "tag-order"),
    ],
)
def test_a_defect_between_elements_without_defects_is_found_with_its_path(element: bytes, rule: str) -> None:
    body = b"\x08" + b"\1\1\0" * 3 + element + b"\1\1\0" * 3 + b"\0"
    (found,) = read(framed(PRODUCE + body), form("request", 0, 9)).defects
    assert str(found.rule) == rule
    assert found.path.startswith("topic_data[3]")


@pytest.mark.parametrize("element", [b"\1\1\0", b"\1\1\1\x7f\0"])
def test_elements_without_defects_take_few_steps(element: bytes) -> None:
    """Small structs are the most work per byte: 10 MB of them must take seconds."""
    layout = form("request", 0, 9).codec.layout
    topics = BODY + b"\x80\x7f" + element * (COUNT - 1) + b"\0"
    scanner = MessageScanner(topics, 0)
    assert steps(lambda: scanner.scan(layout)) < STEPS_PER_BYTE * len(topics)
    assert scanner.complete
    assert scanner.elements >= COUNT - 1
