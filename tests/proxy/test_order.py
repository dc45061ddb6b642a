"""Responses go out in the order of their requests, also those that are Weir's own."""

from __future__ import annotations

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, header, request, response, unknown_request, unknown_response
from tests.wire.messages import ping, pong
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from weir.proxy.close_reasons import CloseReason


def large_pong(correlation_id: int) -> bytes:
    return response(OffsetFetchResponse(unknown_tagged_fields=((9999, b"x" * 5000),)), 6, correlation_id)


def large_ask(correlation_id: int) -> bytes:
    return request(OffsetFetchRequest(group_id="g", topics=None), 6, correlation_id)


def too_new(correlation_id: int) -> bytes:
    """ApiVersions in a version that nobody has, in whatever form that may have."""
    return framed(header(ApiKey.API_VERSIONS, 99, correlation_id, b"app", tags=None) + b"whatever")


def refusal(correlation_id: int) -> bytes:
    ranges = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=5)]
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
    return response(answer, 0, correlation_id)


def test_a_local_response_waits_for_earlier_responses() -> None:
    with Playbook() as play:
        play.client(ping(1), too_new(2), ping(3), too_new(4), too_new(5))
        play.to_broker(ping(1), ping(3))
        play.broker(pong(1))
        play.to_client(pong(1), refusal(2))
        play.broker(pong(3))
        play.to_client(pong(3), refusal(4), refusal(5))


@pytest.mark.parametrize("asked_while_it_streams", [False, True])
def test_a_local_response_is_sent_between_a_streamed_response_and_the_next(
    asked_while_it_streams: bool,
) -> None:
    """The rest of a response and the next response come in one read, with an own reply due between them."""
    answer = large_pong(1)
    with Playbook() as play:
        first = [large_ask(1)] if asked_while_it_streams else [large_ask(1), too_new(2), ping(3)]
        play.client(*first)
        play.to_broker(*first[:1], *first[2:])
        play.returns(answer[:3000])
        if asked_while_it_streams:
            play.client(too_new(2), ping(3))
            play.to_broker(ping(3))
        play.broker(answer[3000:], pong(3))
        play.to_client(answer[3000:], refusal(2), pong(3))


def test_a_too_new_apiversions_request_is_refused_once_it_is_whole() -> None:
    asked = too_new(1)
    with Playbook() as play:
        play.client(asked[:-1])
        play.silent()
        play.client(asked[-1:])
        play.to_client(refusal(1))


def test_unknown_apis_and_versions_pass_and_are_counted() -> None:
    asked = [unknown_request(999, 0, 1), unknown_request(ApiKey.OFFSET_COMMIT, 99, 2, b"\xff" * 50)]
    answered = [unknown_response(1, b"\x00" * 9), unknown_response(2, b"")]
    with Playbook() as play:
        play.forwards(*asked)
        play.returns(*answered)
        assert play.connection.counters.requests_not_understood == 2


def test_at_most_in_flight_max_requests_are_in_flight() -> None:
    with Playbook(in_flight_max=2) as play:
        play.client(ping(1), ping(2), ping(3), ping(4))
        play.to_broker(ping(1), ping(2))
        play.returns(pong(1))
        play.to_broker(ping(3))
        play.returns(pong(2), pong(3))
        play.to_broker(ping(4))


def test_a_malformed_tail_of_a_streamed_fetch_response_is_the_brokers_violation() -> None:
    """A tag section that cannot be, behind records that have been sent on already."""
    topic = FetchResponse.FetchableTopicResponse(
        partitions=[FetchResponse.PartitionData(records=b"r" * 5000)]
    )
    answer = response(FetchResponse(responses=[topic]), 16)[:-1] + b"\xff" * 7
    answer = framed(answer[4:])
    with Playbook(buffer_bytes=1000) as play:
        play.relays(request(FetchRequest(), 16), answer[:4000])
        play.broker(answer[4000:], pong(9))
        play.to_client(answer[4000:5000])  # a buffer that was judged before the bad one
        play.violation(CloseReason.RESPONSE_MALFORMED)


def test_without_quotas_an_equal_metadata_request_is_not_parsed_again() -> None:
    connection = new_connection()
    wire, asked = Wire(connection), request(MetadataRequest(topics=[]), 1)
    wire.exchange(0, asked, response(MetadataResponse(), 1))
    connection.plans[ApiKey.METADATA, 1].admit = lambda *_: pytest.fail("parsed again")
    wire.feed(1, client=asked)
    assert wire.to_broker == asked + asked
