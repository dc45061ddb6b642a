"""The counts of checked traffic."""

from __future__ import annotations

from tests.conformance.captures import answered, sent
from tests.wire.frames import framed, request, response
from weir.conformance.events import Dropped, Side
from weir.conformance.verify import Traffic, Verifier
from weir.protocol.messages import (
    MetadataRequest,
    MetadataResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

ASK, ANSWER = request(MetadataRequest(), 9, 1), response(MetadataResponse(), 9, 1)


def test_frames_count_by_api_version_and_side() -> None:
    verifier = Verifier()
    for event in (sent(ASK), sent(ASK), answered(ANSWER), sent(ASK, connection=2)):
        verifier.take(event)
    traffic = verifier.traffic
    (metadata,) = traffic.exchanges()
    assert (metadata.api, metadata.version, metadata.requests, metadata.responses) == ("Metadata", 9, 3, 1)
    assert (traffic.connections, traffic.frames, traffic.bytes) == (2, 4, 3 * len(ASK) + len(ANSWER))


def test_a_frame_in_parts_counts_once() -> None:
    verifier = Verifier()
    for at in range(len(ASK)):
        verifier.take(sent(ASK[at : at + 1]))
    assert (verifier.traffic.frames, verifier.traffic.bytes) == (1, len(ASK))


def test_tokens_without_a_header_count_as_frames_without_an_api() -> None:
    verifier = Verifier()
    verifier.take(sent(request(SaslHandshakeRequest(mechanism="PLAIN"), 0, 1)))
    verifier.take(answered(response(SaslHandshakeResponse(mechanisms=["PLAIN"]), 0, 1)))
    verifier.take(sent(framed(b"\0user\0secret")))
    verifier.take(answered(framed(b"")))
    assert (verifier.traffic.other.requests, verifier.traffic.other.responses) == (1, 1)
    assert verifier.traffic.frames == 4


def test_unknown_apis_and_responses_without_a_request_count() -> None:
    verifier = Verifier()
    verifier.take(sent(framed(b"\x03\xe7\0\5\0\0\0\1\0\1a")))
    verifier.take(answered(ANSWER, connection=2))
    (unknown,) = verifier.traffic.exchanges()
    assert (unknown.api, unknown.version, unknown.known, unknown.requests) == ("API 999", 5, False, 1)
    assert verifier.traffic.other.responses == 1


def test_bytes_behind_a_gap_do_not_count() -> None:
    verifier = Verifier()
    for event in (sent(ASK), Dropped(1, 0, Side.CLIENT, 5), sent(ASK)):
        verifier.take(event)
    assert (verifier.traffic.frames, verifier.traffic.bytes) == (1, len(ASK))


def test_several_captures_add_to_the_same_counts() -> None:
    traffic = Traffic()
    for _capture in range(2):
        Verifier(traffic=traffic).take(sent(ASK))
    assert (traffic.connections, traffic.frames) == (2, 2)
