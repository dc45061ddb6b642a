"""Messages of any size, and any bytes: typed findings, bounded memory, linear work."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from tests.conformance.batches import batch
from tests.conformance.captures import answered, findings, nested, produce, produced, rules, sent
from tests.fuzz.work import cost
from tests.wire.frames import framed, request, response
from weir.conformance.verify import messages
from weir.conformance.verify.finding import Finding, without_indices
from weir.conformance.verify.messages import form, read
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

LARGE: Final = 10_000
ELEMENTS: Final = 1000
PEAK_PER_BYTE: Final = 4
"""The frame, received in parts and joined, and a copy of a part."""


def api_versions_response(tags: bytes) -> list[Finding]:
    asked = ApiVersionsRequest(client_software_name="client", client_software_version="1")
    body = response(ApiVersionsResponse(), 3)[4:-1]
    return findings(sent(request(asked, 3)), answered(framed(body + tags)))


def test_a_tagged_field_with_its_default_value_is_a_note() -> None:
    (found,) = api_versions_response(b"\1\0\1\1")  # no supported features
    assert (str(found.rule), str(found.severity)) == ("tag-default", "note")
    assert (found.path, found.offset) == ("supported_features", 17)


def test_the_note_of_a_default_value_names_its_field_and_no_other() -> None:
    (found,) = api_versions_response(
        b"\2\1\x08" + bytes(8) + b"\3\1\0"
    )  # an epoch, which is needed, and false
    assert (str(found.rule), found.path) == ("tag-default", "zk_migration_ready")


def test_a_tagged_field_with_another_size_is_found() -> None:
    (found,) = api_versions_response(b"\1\0\2\1\0")
    assert (str(found.rule), found.path) == ("tag-size", "supported_features")
    assert (found.expected, found.found) == ("1", "2")


def test_a_message_with_too_many_elements_needs_no_memory_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LARGE", LARGE)
    monkeypatch.setattr(messages, "ELEMENTS_MAX", ELEMENTS)
    frame = nested(20 * ELEMENTS)
    assert len(frame) > LARGE
    events = [sent(frame[at : at + 4096]) for at in range(0, len(frame), 4096)]
    assert rules(findings(*events)) == ["contents-unchecked"]  # what is made once is made before
    assert cost(lambda: findings(*events)).peak_bytes < PEAK_PER_BYTE * len(frame)


def test_work_doubles_with_the_number_of_elements() -> None:
    shape = form("request", 0, 9)
    read(nested(2000), shape)
    for tags in (b"\0", b"\1\0\0", b"\1\x85\0\0"):  # the last two are read by the slower scanner
        less = cost(partial(read, nested(2000)[:-1] + tags, shape))
        more = cost(partial(read, nested(4000)[:-1] + tags, shape))
        assert more.steps < 2.1 * less.steps


def test_large_messages_below_the_limit_are_checked_completely() -> None:
    frame = produce(batch() + bytes(2 << 20))
    assert rules(findings(sent(frame))) == ["batch-length"]
    assert len(frame) > messages.LARGE


def test_an_answered_producer_has_no_finding_over_many_frames() -> None:
    events = []
    for number in range(50):
        events += [sent(produce(batch(), 9, number), number), answered(produced(9, number), number)]
    assert findings(*events) == []


def test_a_path_without_indices_identifies_a_field() -> None:
    assert without_indices("topics[12].partitions[0].index") == "topics[].partitions[].index"
    assert without_indices("throttle_time_ms") == "throttle_time_ms"
