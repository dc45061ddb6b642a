"""Events become JSON lines: a line for each frame, with the decoded message."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.wire.frames import framed, request, response
from weir.conformance.capture.json_lines import json_lines
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    SaslAuthenticateRequest,
)


def lines(*events: Event) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in json_lines(events)]


def test_requests_and_responses_are_decoded_and_named() -> None:
    ask, answer = request(MetadataRequest(), 1, 5), response(MetadataResponse(controller_id=3), 1, 5)
    found = lines(
        Opened(4, 1, "c:1", "s:2", "broker 1"),
        Bytes(4, 2, Side.CLIENT, ask[:9]),
        Bytes(4, 3, Side.CLIENT, ask[9:]),
        Bytes(4, 4, Side.SERVER, answer),
        Closed(4, 5, Side.SERVER),
    )
    assert [line["event"] for line in found] == ["opened", "request", "response", "closed"]
    opened, asked, answered, closed = found
    opened_by = {"client": "c:1", "server": "s:2", "label": "broker 1"}
    assert opened == {"connection": 4, "time_ns": 1, "event": "opened", **opened_by}
    assert asked.items() >= {"api": "Metadata", "api_key": 3, "version": 1, "correlation_id": 5}.items()
    assert (asked["client_id"], asked["bytes"], asked["time_ns"]) == ("app", len(ask), 3)
    assert (answered["api"], answered["version"], answered["bytes"]) == ("Metadata", 1, len(answer))
    assert answered["message"]["controller_id"] == 3
    assert closed["side"] == "server"


def test_bytes_fields_are_base64() -> None:
    (line,) = lines(Bytes(0, 1, Side.CLIENT, request(SaslAuthenticateRequest(auth_bytes=b"\0\xff"), 0)))
    assert line["message"]["auth_bytes"] == "AP8="


def test_frames_that_cannot_be_decoded_have_an_error_and_their_bytes() -> None:
    found = lines(
        Bytes(0, 1, Side.CLIENT, framed(b"\x7f\0\0\0\0\0\0\1")),
        Bytes(0, 2, Side.CLIENT, framed(b"\0\3\0\1\0\0\0\2\0\0?")),
        Bytes(0, 3, Side.CLIENT, framed(b"abc")),
        Bytes(0, 4, Side.SERVER, framed(b"\0\0\0\x63?")),
        Bytes(0, 5, Side.SERVER, b"\xff\xff\xff\xff"),
    )
    assert all(line["error"] for line in found)
    assert found[1]["hex"] == framed(b"\0\3\0\1\0\0\0\2\0\0?").hex()
    assert [line["event"] for line in found] == ["request", "request", "request", "response", "malformed"]


def test_a_produce_request_that_gets_no_response_takes_none_from_later_requests() -> None:
    silent, ask = request(ProduceRequest(acks=0), 3, 5), request(MetadataRequest(), 1, 5)
    found = lines(
        Bytes(0, 1, Side.CLIENT, silent + ask), Bytes(0, 2, Side.SERVER, response(MetadataResponse(), 1, 5))
    )
    assert [line["api"] for line in found] == ["Produce", "Metadata", "Metadata"]


def test_an_api_versions_response_with_error_35_is_read_in_version_0() -> None:
    """KIP-511; so brokers of 0.10 to 2.3 answer today's clients."""
    answer = response(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0, 5)
    for version in (3, 4):
        asked = request(ApiVersionsRequest(client_software_name="c", client_software_version="1"), version, 5)
        _, line = lines(Bytes(0, 1, Side.CLIENT, asked), Bytes(0, 2, Side.SERVER, answer))
        assert "error" not in line
        assert (line["version"], line["message"]["error_code"]) == (version, 35)


def test_frames_behind_missing_bytes_do_not_join_those_before() -> None:
    ask = request(MetadataRequest(), 1, 5)
    found = lines(
        Bytes(0, 1, Side.CLIENT, ask[:10]), Dropped(0, 2, Side.CLIENT, 9), Bytes(0, 3, Side.CLIENT, ask)
    )
    assert [line["event"] for line in found] == ["dropped", "request"]
    assert found[0]["bytes"] == 9
    assert "error" not in found[1]
