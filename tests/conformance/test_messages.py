"""Messages of any size, and any bytes: typed findings, bounded memory, linear work."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.batches import batch, message_set
from tests.conformance.captures import answered, findings, nested, produce, produced, rules, sent
from tests.fuzz.work import cost
from tests.properties import examples
from tests.protocol.generate import each_version, every_version, sample
from tests.protocol.mutate import mutate
from tests.wire.frames import framed, request, response
from weir.conformance.events import Bytes, Closed, Dropped, Opened, Side
from weir.conformance.verify import messages, verify
from weir.conformance.verify.finding import Finding, without_indices
from weir.conformance.verify.messages import form, read
from weir.conformance.verify.record_batches import BatchChecker, bounds
from weir.protocol.codec import request_type
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.values import Message, schema_of

MUTATIONS: Final = 20
SIDES: Final = st.sampled_from(Side)
CONNECTIONS: Final = st.integers(1, 2)
EVENTS: Final = st.one_of(
    st.builds(
        Bytes, connection=CONNECTIONS, time_ns=st.integers(0, 9), side=SIDES, data=st.binary(max_size=80)
    ),
    st.builds(Opened, connection=CONNECTIONS, time_ns=st.just(0), client=st.just(""), server=st.just("")),
    st.builds(Closed, connection=CONNECTIONS, time_ns=st.just(0), side=SIDES),
    st.builds(Dropped, connection=CONNECTIONS, time_ns=st.just(0), side=SIDES, count=st.integers(1, 9)),
)
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


@each_version(every_version())
def test_changed_frames_lead_to_findings_and_never_to_exceptions(
    message: type[Message], version: int
) -> None:
    source = random.Random(f"{message.__name__} {version}")
    value: Any = sample(message, version)
    schema = schema_of(message)
    frame = (request if schema.kind == "request" else response)(value, version)
    assert schema.kind != "header"
    shape = form(schema.kind, schema.api_key, version)
    for _ in range(MUTATIONS):
        data = frame[:12] + mutate(frame[12:], source)
        read(data, shape)
        request_of = request(sample(request_type(schema_of(message).api_key), version), version)
        list(verify([sent(data if schema.kind == "request" else request_of), answered(data)]))


@examples(300)
@given(st.lists(EVENTS, max_size=12))
def test_any_events_lead_to_findings_and_never_to_exceptions(events: list[Any]) -> None:
    for finding in verify(events):
        assert finding.message
        assert finding.offset >= -1


@pytest.mark.parametrize("records", [batch(), batch(codec=1), message_set(1), message_set(0, codec=1)])
@examples(100)
@given(source=st.randoms(use_true_random=False))
def test_changed_records_lead_to_defects_and_never_to_exceptions(
    records: bytes, source: random.Random
) -> None:
    data = mutate(records, source)
    for api, version in (("Produce", 9), ("Produce", 1), ("Fetch", 11), ("ShareFetch", 1)):
        checker = BatchChecker(data, bounds(api, version))
        checker.check()


def test_an_answered_producer_has_no_finding_over_many_frames() -> None:
    events = []
    for number in range(50):
        events += [sent(produce(batch(), 9, number), number), answered(produced(9, number), number)]
    assert findings(*events) == []


def test_a_path_without_indices_identifies_a_field() -> None:
    assert without_indices("topics[12].partitions[0].index") == "topics[].partitions[].index"
    assert without_indices("throttle_time_ms") == "throttle_time_ms"
