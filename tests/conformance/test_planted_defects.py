"""Each defect is found by its rule, and by no other rule."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Final

import pytest

from tests.conformance.batches import TIME_MS, batch, changed, message_set
from tests.conformance.captures import MS, answered, fetch, fetched, findings, produce, produced, rules, sent
from tests.wire.frames import framed, header, request, response, unknown_request, unknown_response
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.conformance.verify import RULES, R, verify
from weir.conformance.verify.rules import check_names
from weir.protocol.checksums import crc32c
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

HEARTBEAT: Final = HeartbeatRequest(group_id="group", generation_id=4, member_id="member")
SEQUENCED: Final = batch(3, producer=5, epoch=2, sequence=10)


def beat(ms: int = 0, correlation_id: int = 1) -> Bytes:
    return sent(request(HEARTBEAT, 4, correlation_id), ms)


def beaten(ms: int = 0, correlation_id: int = 1, *, throttle_ms: int = 0, error_code: int = 0) -> Bytes:
    message = HeartbeatResponse(throttle_time_ms=throttle_ms, error_code=error_code)
    return answered(response(message, 4, correlation_id), ms)


def heartbeat_body(body: bytes, version: int = 4, tags: bytes = b"\0") -> list[Event]:
    flexible = version >= 4
    frame = framed(header(12, version, 1, b"app", tags=tags if flexible else None) + body)
    return [sent(frame), answered(response(HeartbeatResponse(), version))]


def metadata_body(body: bytes, version: int) -> list[Event]:
    frame = framed(header(3, version, 1, b"app", tags=b"\0" if version >= 9 else None) + body)
    return [sent(frame)]


def api_versions(frame: bytes, version: int = 3) -> list[Event]:
    asked = ApiVersionsRequest(client_software_name="client", client_software_version="1")
    return [sent(request(asked, version)), answered(frame)]


def software(name: str, version: str) -> list[Event]:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    return [sent(request(asked, 3)), answered(response(ApiVersionsResponse(), 3))]


def with_tags_in_header(frame: bytes) -> bytes:
    return framed(frame[4:8] + b"\0" + frame[8:])


def offering(api_key: int, low: int, high: int) -> list[Event]:
    offered = ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=low, max_version=high)
    return api_versions(response(ApiVersionsResponse(api_keys=[offered]), 3))


def created(version: int, error_code: int) -> list[Event]:
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    result = CreateTopicsResponse.CreatableTopicResult(name="a", error_code=error_code)
    return [
        sent(request(CreateTopicsRequest(topics=[topic]), version)),
        answered(response(CreateTopicsResponse(topics=[result]), version)),
    ]


def telemetry(error_code: int) -> list[Event]:
    return [
        sent(request(GetTelemetrySubscriptionsRequest(), 0)),
        answered(response(GetTelemetrySubscriptionsResponse(error_code=error_code), 0)),
    ]


def brokers_heartbeat(error_code: int) -> list[Event]:
    return [
        sent(request(BrokerHeartbeatRequest(), 0)),
        answered(response(BrokerHeartbeatResponse(error_code=error_code), 0)),
    ]


def producing(*batches: bytes, version: int = 9) -> list[Event]:
    return [sent(produce(records, version, number)) for number, records in enumerate(batches)]


def accepted(*batches: bytes, error_code: int = 0) -> list[Event]:
    return [
        event
        for records in batches
        for event in (sent(produce(records)), answered(produced(error_code=error_code)))
    ]


def fetching(records: bytes, version: int = 11) -> list[Event]:
    return [sent(fetch(version)), answered(fetched(records, version))]


def handshake(version: int = 1, mechanism: str = "PLAIN") -> list[Event]:
    return [
        sent(request(SaslHandshakeRequest(mechanism=mechanism), version)),
        answered(response(SaslHandshakeResponse(mechanisms=[mechanism]), version)),
    ]


def authenticated(token: bytes = b"\0user\0secret") -> list[Event]:
    return [
        sent(request(SaslAuthenticateRequest(auth_bytes=token), 2)),
        answered(response(SaslAuthenticateResponse(), 2)),
    ]


def gzipped(unpacked: bytes) -> bytes:
    data = changed(batch(1)[:61] + gzip.compress(unpacked), attributes=1)
    return changed(data, length=len(data) - 12)


# The body of a heartbeat v4: group "group", generation 4, member "member", no instance, no tags.
GROUP: Final = b"\x06group"
TAIL: Final = b"\0\0\0\4\x07member\0"
PLAIN: Final = GROUP + TAIL + b"\0"

PLANTED: Final[list[tuple[str, Sequence[Event]]]] = [
    ("capture-gap", [beat(), Dropped(1, 0, Side.SERVER, 40), answered(b"rest of a frame")]),
    ("frame-length", [sent(struct.pack(">i", -5))]),
    ("frame-length", [sent(framed(b"1234567"))]),
    ("frame-length", [beat(), answered(framed(b"123"))]),
    ("frame-incomplete", [sent(request(HEARTBEAT, 4)[:-1]), Closed(1, 0, Side.CLIENT)]),
    (
        "frame-too-large",
        [sent(struct.pack(">ihhi", 200 << 20, 12, 4, 1) + bytes(100)), sent(bytes((200 << 20) - 108))],
    ),
    ("unknown-api", [sent(unknown_request(999, 0)), answered(unknown_response())]),
    ("unknown-version", [sent(unknown_request(12, 99)), answered(unknown_response())]),
    ("version-not-offered", [*offering(12, 0, 3), beat(), beaten()]),
    ("version-not-offered", [*offering(3, 0, 3), beat(), beaten()]),
    ("api-versions-fallback", api_versions(response(ApiVersionsResponse(error_code=35), 3))),
    ("api-versions-header", api_versions(with_tags_in_header(response(ApiVersionsResponse(), 3)))),
    ("response-without-request", [beaten()]),
    ("response-order", [beat(0, 1), beat(0, 2), beaten(1, 2), beaten(1, 1)]),
    ("correlation-id", [beat(0, 1), beaten(1, 77)]),
    ("correlation-id-reused", [beat(0, 1), beat(0, 1), beaten(1, 1), beaten(1, 1)]),
    ("request-unanswered", [beat(), Closed(1, 0, Side.SERVER)]),
    ("field-length", heartbeat_body(b"\x70group" + TAIL + b"\0")),
    ("field-length", heartbeat_body(PLAIN[:-3])),
    ("field-length", metadata_body(struct.pack(">i", 1 << 30), 1)),
    ("null-not-allowed", heartbeat_body(b"\0" + TAIL + b"\0")),
    ("null-form", metadata_body(struct.pack(">i", -7), 1)),
    ("varint", heartbeat_body(b"\xff\xff\xff\xff\xff\x01" + TAIL + b"\0")),
    ("varint-not-minimal", heartbeat_body(b"\x86\0group" + TAIL + b"\0")),
    ("bool-value", metadata_body(struct.pack(">i", -1) + b"\7", 4)),
    ("string-utf8", heartbeat_body(b"\x06gr\xffup" + TAIL + b"\0")),
    ("tag-order", heartbeat_body(GROUP + TAIL + b"\2\x65\1a\x64\1b")),
    ("tag-order", heartbeat_body(GROUP + TAIL + b"\2\x65\1a\x65\1a")),
    ("tag-order", heartbeat_body(PLAIN, tags=b"\2\x65\1a\x64\1b")),
    ("request-trailing-bytes", heartbeat_body(PLAIN + b"\0")),
    ("request-trailing-bytes", metadata_body(struct.pack(">i", -1) + b"\0\0\0", 1)),
    (
        "response-trailing-bytes",
        [beat(), answered(framed(struct.pack(">i", 1) + b"\0" + bytes(7) + b"more"))],
    ),
    ("error-code-unknown", [beat(), beaten(error_code=9999)]),
    ("error-code-of-api", [beat(), beaten(error_code=3)]),
    ("error-code-of-api", created(6, 27)),
    ("error-89-version", created(5, 89)),
    ("error-89-version", [beat(), beaten(error_code=89)]),
    ("throttle-negative", [beat(), beaten(throttle_ms=-1)]),
    ("throttle-ignored", [beat(), beaten(10, throttle_ms=500), beat(100), beaten(510)]),
    ("throttle-ignored", [beat(), beaten(10, throttle_ms=500), beat(11), beaten(510)]),
    ("sasl-order", authenticated()),
    ("sasl-order", [*handshake(), beat(), beaten()]),
    ("sasl-unchecked", [*handshake(0, "GSSAPI"), sent(framed(b"token")), answered(framed(b"x"))]),
    ("batch-length", producing(changed(batch(), length=5000))),
    ("batch-length", producing(changed(batch(), length=20))),
    ("batch-length", producing(bytes(14))),
    ("batch-length", producing(message_set(1)[:-1], version=2)),
    ("batch-magic", producing(batch(), version=2)),
    ("batch-magic", fetching(message_set(1, 1), version=1)),
    ("batch-crc", producing(changed(batch(), right_crc=False, crc=1))),
    ("batch-crc", producing(batch()[:-1] + b"\x7f")),
    ("batch-crc", producing(message_set(1)[:-1] + b"?", version=2)),
    ("batch-count", producing(changed(batch(), count=4))),
    ("batch-count", fetching(changed(batch(), count=2))),
    ("batch-offsets", producing(changed(batch(), last_offset_delta=3))),
    ("batch-offsets", producing(batch(offset=1))),
    ("produce-acks", [sent(produce(batch()).replace(b"\0\1\0\0\3\xe8", b"\0\2\0\0\3\xe8"))]),
    ("client-software", software("my client", "1")),
    ("client-software", software("client", "1.0-")),
    ("client-software", software("", "1")),
    ("batch-offsets", fetching(changed(batch(), last_offset_delta=1))),
    ("batch-offsets", fetching(batch(offset=10) + batch(offset=11))),
    ("batch-timestamps", producing(changed(batch(), max_timestamp=5))),
    ("batch-compression", producing(changed(batch(), attributes=7))),
    ("batch-compression", producing(changed(batch(), attributes=1))),
    ("batch-compression", producing(changed(batch(), attributes=2))),
    ("batch-compression", producing(changed(batch(), attributes=3))),
    ("batch-compression", producing(changed(batch(), attributes=4))),
    ("batch-unopened", producing(gzipped(bytes(65 << 20)))),
    ("record-format", producing(gzipped(b"\x7f"))),
    ("record-format", producing(changed(batch(1)[:61] + b"\xff" + batch(1)[62:]))),
    ("produce-one-batch", producing(batch() + batch(offset=3))),
    ("producer-state", producing(changed(batch(), producer_id=7))),
    ("producer-state", producing(changed(batch(), attributes=16))),
    ("producer-epoch", producing(SEQUENCED, changed(SEQUENCED, producer_epoch=1))),
    ("producer-sequence", producing(SEQUENCED, changed(SEQUENCED, base_sequence=14))),
    ("producer-sequence", producing(SEQUENCED, changed(SEQUENCED, producer_epoch=3, base_sequence=13))),
    ("producer-sequence", accepted(SEQUENCED, changed(SEQUENCED, max_timestamp=TIME_MS + 4, attributes=8))),
    ("producer-sequence", accepted(SEQUENCED, changed(SEQUENCED, base_sequence=11))),
    ("producer-sequence", accepted(SEQUENCED, batch(1, producer=5, epoch=2, sequence=10))),
]


@pytest.mark.parametrize(
    ("rule", "events"), PLANTED, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(PLANTED)]
)
def test_a_planted_defect_is_found_by_its_rule_alone(rule: str, events: Sequence[Event]) -> None:
    assert rules(findings(*events)) == [rule]


def test_a_rule_that_is_switched_off_finds_nothing() -> None:
    for rule, events in PLANTED:
        assert list(verify(events, without=[rule])) == [], rule


def test_a_defect_is_planted_for_each_rule_that_any_capture_can_break() -> None:
    elsewhere = {R.TAG_SIZE, R.TAG_DEFAULT, R.CONTENTS_UNCHECKED}  # test_messages.py
    unreachable = {R.ENCODING_DIFFERS}  # for a fault of the codec
    assert {rule for rule, _ in PLANTED} | elsewhere | unreachable == set(RULES)


ALLOWED: Final[list[tuple[str, Sequence[Event]]]] = [
    (
        "a polite client",
        [Opened(1, 0, "c:1", "s:2"), beat(), beaten(5, throttle_ms=100), beat(105), beaten(110)],
    ),
    (
        "an older version",
        [
            sent(request(HEARTBEAT, 1)),
            answered(response(HeartbeatResponse(throttle_time_ms=900), 1)),
            beat(20),
            beaten(30),
        ],
    ),
    (
        "a request under way",
        [beat(0, 1), beat(1, 2), beaten(5, 1, throttle_ms=100), beat(6, 3), beaten(7, 2), beaten(8, 3)],
    ),
    (
        "ApiVersions of a newer client",
        [
            sent(unknown_request(18, 99)),
            answered(response(ApiVersionsResponse(error_code=35), 0)),
            beat(),
            beaten(),
        ],
    ),
    (
        "ApiVersions of an older broker",
        [*api_versions(response(ApiVersionsResponse(error_code=35), 0)), beat(), beaten()],
    ),
    ("software as KIP-511 permits it", software("a", "2.0.1-rc-1")),
    ("error 89 where it is known", created(6, 89)),
    ("error 89 of a client that pushes telemetry too early", telemetry(89)),
    ("an error code of the API", created(6, 36)),
    ("any error code of an API that has no list", brokers_heartbeat(33)),
    ("SASL", [*handshake(), *authenticated(), beat(), beaten()]),
    ("SCRAM", [*handshake(1, "SCRAM-SHA-256"), *authenticated(), *authenticated(), beat(), beaten()]),
    (
        "SASL tokens without headers",
        [*handshake(0), sent(framed(b"\0user\0secret")), answered(framed(b"")), beat(), beaten()],
    ),
    ("unknown tags", heartbeat_body(GROUP + TAIL + b"\2\x65\1a\x66\1b")),
    ("tags in the header", heartbeat_body(PLAIN, tags=b"\1\x65\1a")),
    ("a client-id in UTF-8", [sent(request(HEARTBEAT, 4, client_id="käse".encode())), beaten()]),
    (
        "acks=0",
        [sent(produce(batch()).replace(b"\0\1\0\0\3\xe8", b"\0\0\0\0\3\xe8")), beat(0, 2), beaten(0, 2)],
    ),
    ("a fetch cut short", fetching(batch(offset=1) + batch(offset=4)[:-9])),
    ("a compacted batch", fetching(changed(batch(), last_offset_delta=9))),
    (
        "a repeated batch",
        producing(
            SEQUENCED,
            SEQUENCED,
            changed(SEQUENCED, base_sequence=13),
            SEQUENCED,
            changed(SEQUENCED, base_sequence=16),
        ),
    ),
    ("a repeated batch that was accepted", accepted(SEQUENCED, SEQUENCED)),
    (
        "smaller batches instead of a refused one",
        accepted(
            SEQUENCED,
            *(batch(1, producer=5, epoch=2, sequence=sequence) for sequence in (10, 11, 12)),
            error_code=10,
        ),
    ),
    (
        "the numbers of an accepted batch in a new epoch",
        accepted(batch(3, producer=5, epoch=2, sequence=0), batch(1, producer=5, epoch=3, sequence=0)),
    ),
    ("a new epoch", producing(SEQUENCED, changed(SEQUENCED, producer_epoch=3, base_sequence=0))),
    (
        "sequences that wrap around",
        producing(changed(SEQUENCED, base_sequence=(1 << 31) - 2), changed(SEQUENCED, base_sequence=1)),
    ),
    (
        "a closed connection",
        [beat(), beaten(), Closed(1, 0, Side.SERVER), Closed(1, 0, Side.CLIENT), beat(), beaten()],
    ),
    ("a client that leaves", [beat(), Closed(1, 0, Side.CLIENT), Closed(1, 0, Side.SERVER)]),
]


@pytest.mark.parametrize("events", [events for _, events in ALLOWED], ids=[name for name, _ in ALLOWED])
def test_allowed_behaviour_has_no_finding(events: Sequence[Event]) -> None:
    assert findings(*events) == []


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_boundaries_between_events_do_not_change_findings(size: int) -> None:
    for rule, events in PLANTED:
        if rule in (R.FRAME_TOO_LARGE, R.BATCH_UNOPENED) or not all(isinstance(one, Bytes) for one in events):
            continue
        parts = [
            Bytes(one.connection, one.time_ns, one.side, one.data[at : at + size])
            for one in events
            if isinstance(one, Bytes)
            for at in range(0, len(one.data), size)
        ]
        assert rules(findings(*parts)) == [rule]


def test_a_side_that_closes_second_may_leave_its_frame_incomplete() -> None:
    """Its peer no longer reads; seen when librdkafka closed a connection while a response was on its way."""
    part_of_response, part_of_request = beaten().data[:-1], beat().data[:-1]
    client_leaves: list[Event] = [
        beat(),
        answered(part_of_response),
        Closed(1, 0, Side.CLIENT),
        Closed(1, 0, Side.SERVER),
    ]
    server_leaves: list[Event] = [sent(part_of_request), Closed(1, 0, Side.SERVER), Closed(1, 0, Side.CLIENT)]
    assert findings(*client_leaves) == findings(*server_leaves) == []


def test_librdkafkas_three_bytes_behind_a_metadata_request_are_named() -> None:
    """The frame is librdkafka 2.16.0's, recorded from `list_topics`: the null array of topics is an int32."""
    frame = bytes.fromhex("00000019 0003 000d 00000003 0007 72646b61666b61 00 00000000 01 00 00")
    found = findings(sent(frame), answered(response(MetadataResponse(), 13, 3)))
    assert rules(found) == ["request-trailing-bytes"]
    assert "brokers ignore them" in found[0].message
    assert (found[0].api, found[0].version, found[0].found) == ("Metadata", 13, "3 bytes")


def test_a_finding_gives_path_offset_values_and_context() -> None:
    frame = request(HEARTBEAT, 4)
    at = frame.index(b"group")
    (found,) = findings(sent(frame.replace(b"group", b"gr\xffup")), beaten())
    assert (found.path, found.offset) == ("group_id", at + 2)
    assert (found.api, found.version, found.correlation_id) == ("Heartbeat", 4, 1)
    assert f"{b'r'.hex()} [ff] {b'up'.hex(' ')}" in found.context
    assert found.side is Side.CLIENT


def test_an_error_code_of_other_apis_is_named_with_those_of_this_api() -> None:
    (found,) = findings(*created(6, 27))
    assert (found.path, found.found) == ("topics[0].error_code", "27 (REBALANCE_IN_PROGRESS)")
    assert "36, 37, 38" in found.expected


def test_a_finding_in_records_gives_its_offset_in_the_frame() -> None:
    frame = produce(changed(batch(), right_crc=False, crc=0x01020304))
    (found,) = findings(sent(frame))
    assert frame[found.offset : found.offset + 4] == bytes([1, 2, 3, 4])
    assert found.path == "topic_data[0].partition_data[0].records.batch[0].crc"
    assert found.key == ("batch-crc", "Produce", 9, "topic_data[].partition_data[].records.batch[].crc")


def test_a_throttle_is_reported_once_with_both_times() -> None:
    (found,) = findings(beat(), beaten(10, throttle_ms=500), beat(100), beaten(101), beat(120), beaten(121))
    assert (found.expected, found.found, found.time_ns) == ("500 ms of quiet", "90 ms", 100 * MS)


def test_rules_that_do_not_exist_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no rule nonsense"):
        check_names(["batch-crc", "nonsense"])


def test_a_wrong_checksum_names_the_bytes_that_it_should_cover() -> None:
    (found,) = findings(*producing(changed(batch(), right_crc=False, crc=1)))
    assert "CRC-32C of the bytes from attributes to the end of the batch" in found.message


@pytest.mark.parametrize("start", [0, 8, 12, 16])
def test_a_checksum_from_another_field_on_is_recognised(start: int) -> None:
    data = batch()
    wrong = crc32c(data[start:17] + data[21:])
    (found,) = findings(*producing(changed(data, right_crc=False, crc=wrong)))
    name = {0: "base_offset", 8: "length", 12: "partition_leader_epoch", 16: "magic"}[start]
    assert f"begins at {name}" in found.message


def test_the_checksum_of_older_messages_is_recognised_in_a_batch() -> None:
    data = batch()
    (found,) = findings(*producing(changed(data, right_crc=False, crc=zlib.crc32(data[21:]))))
    assert "is a CRC-32" in found.message


def test_a_long_varint_of_tagged_fields_says_so() -> None:
    (found,) = findings(*heartbeat_body(GROUP + TAIL + b"\x80\0"))
    assert (found.rule, found.path, found.expected, found.found) == (
        "varint-not-minimal",
        "tagged fields",
        "00",
        "80 00",
    )


def test_an_ignored_throttle_names_the_response_that_had_it() -> None:
    (found,) = findings(beat(), beaten(10, 1, throttle_ms=500), beat(100, 2), beaten(101, 2))
    assert "throttle_time_ms 500 (Heartbeat v4, correlation id 1, byte 9)" in found.message
