"""Messages that the schemas lack, or that cannot be read, blame nobody for what follows."""

from __future__ import annotations

import struct
from typing import Final

import pytest

from tests.conformance.captures import answered, findings, produced, rules, sent
from tests.wire.frames import request, response, unknown_request, unknown_response
from weir.conformance.events import Bytes, Closed, Dropped, Event, Side
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
NEWER: Final = 99
REPORTED: Final = ["unknown-version"]


def beats(*numbers: int) -> list[Event]:
    """Heartbeats with these correlation ids, each answered before the next."""
    return [event for number in numbers for event in (beat(number), beaten(number))]


def beat(number: int) -> Bytes:
    return sent(request(HeartbeatRequest(group_id="group", member_id="member"), 4, number))


def beaten(number: int) -> Bytes:
    return answered(response(HeartbeatResponse(), 4, number))


def test_a_request_that_capture_answers_itself_leaves_the_order_of_later_ones() -> None:
    """`weir capture` answers an ApiVersions version that it lacks, and does not record its own answer."""
    newest = sent(unknown_request(API_VERSIONS, NEWER, 0))
    again = [sent(request(ApiVersionsRequest(), 0, 1)), answered(response(ApiVersionsResponse(), 0, 1))]
    asked = ApiVersionsRequest(
        client_software_name="client", client_software_version="1", cluster_id="other", node_id=7
    )
    astray = sent(request(asked, 5, 0))  # KIP-1242
    for unanswered in (newest, astray):
        assert rules(findings(unanswered, *again, *beats(*range(2, 200)))) == []
        assert rules(findings(unanswered, Closed(1, 0, Side.SERVER))) == []


def test_a_request_beyond_the_schemas_takes_its_place_in_the_order() -> None:
    newest = sent(unknown_request(12, NEWER, 1))
    assert rules(findings(newest, beat(2), answered(unknown_response(1)), beaten(2))) == REPORTED
    late = [beat(2), beaten(2), answered(unknown_response(1)), *beats(3)]
    assert rules(findings(newest, *late)) == REPORTED, "the recorder has it later"


def test_a_produce_request_beyond_the_schemas_may_expect_no_answer() -> None:
    assert rules(findings(sent(unknown_request(0, NEWER, 1)), *beats(2, 3, 4))) == REPORTED


def test_a_broker_that_knows_a_newer_api_versions_answers_in_a_form_of_its_own() -> None:
    form = answered(unknown_response(1, struct.pack(">h", 0) + b"\2form of a later release"))
    assert rules(findings(sent(unknown_request(API_VERSIONS, NEWER, 1)), form, *beats(2))) == []


def test_an_unreadable_offer_of_versions_excuses_the_versions_that_follow() -> None:
    offered = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=3, max_version=1)])
    first = [sent(request(ApiVersionsRequest(), 0, 1)), answered(response(offered, 0, 1))]
    newest = [sent(unknown_request(API_VERSIONS, NEWER, 2)), answered(unknown_response(2, bytes(9)))]
    assert rules(findings(*first, *beats(3))) == ["version-not-offered"]
    assert rules(findings(*first, *newest, *beats(3))) == []


def handshake() -> list[Event]:
    return [
        sent(request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1)),
        answered(response(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1, 1)),
    ]


def authenticated() -> list[Event]:
    return [
        sent(request(SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), 2, 2)),
        answered(response(SaslAuthenticateResponse(), 2, 2)),
    ]


def unknown(api_key: int, number: int) -> list[Event]:
    return [sent(unknown_request(api_key, NEWER, number)), answered(unknown_response(number))]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([*unknown(SASL_HANDSHAKE, 1), *authenticated()], REPORTED),
        ([*handshake(), *unknown(SASL_AUTHENTICATE, 2)], REPORTED),
        ([handshake()[0], answered(unknown_response(1)), *authenticated()], ["field-length"]),
        ([*handshake(), authenticated()[0], answered(unknown_response(2))], ["field-length"]),
    ],
    ids=["handshake", "authenticate", "malformed-handshake", "malformed-authenticate"],
)
def test_a_login_that_cannot_be_read_is_not_judged_further(events: list[Event], found: list[str]) -> None:
    assert rules(findings(*events, *beats(3, 4))) == found


def test_a_request_that_is_never_answered_is_one_finding() -> None:
    assert rules(findings(beat(1), *beats(*range(2, 50)))) == ["response-order"]


def test_an_answer_that_was_overtaken_is_read_as_its_request_says() -> None:
    late = answered(produced(9, 1))
    assert rules(findings(beat(1), beat(2), beaten(2), beat(3), beaten(1), beaten(3))) == ["response-order"]
    assert "tag-order" in rules(findings(beat(1), beat(2), beaten(2), late))


def test_a_gap_of_the_client_ends_the_checks_of_the_server_too() -> None:
    assert rules(findings(*beats(1), Dropped(1, 0, Side.CLIENT, 9), beaten(2), beaten(3))) == ["capture-gap"]
