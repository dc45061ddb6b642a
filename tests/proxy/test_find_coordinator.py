"""FindCoordinator for many keys (v4 and newer, KIP-699): its work is bounded, however its bytes come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.handlers.addresses.rewrite import CACHED_BYTES_MAX, COORDINATORS_MAX

VERSIONS: Final = [4, 5, 6]


def asked(count: int, version: int, key: str = "g") -> bytes:
    return request(FindCoordinatorRequest(coordinator_keys=[key] * count), version)


def answer(count: int, version: int) -> bytes:
    one = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="kafka", port=9092)
    return response(FindCoordinatorResponse(coordinators=[one] * count), version)


def calls_of(work: Callable[[], None]) -> int:
    count = 0

    def profile(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_for_parts(parts: int) -> int:
    """The work that a response for 2,000 keys makes if it comes in so many parts."""
    wire = Wire(new_connection())
    wire.feed(0, client=asked(2000, 6))
    told = answer(2000, 6)
    size = -(-len(told) // parts)

    def work() -> None:
        for start in range(0, len(told), size):
            wire.feed(0, broker=told[start : start + size])

    calls = calls_of(work)
    found = body_of(bytes(wire.to_client), FindCoordinatorResponse, 6)
    assert {(each.host, each.port) for each in found.coordinators} == {("weir", 19094)}
    return calls


def test_a_response_with_many_coordinators_is_read_once_in_however_many_parts_it_comes() -> None:
    assert calls_for_parts(100) < calls_for_parts(1) + 100 * 100


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_for_too_many_coordinators_closes_the_connection(version: int) -> None:
    with Playbook() as play:
        play.forwards(asked(COORDINATORS_MAX, version))
    with Playbook() as play:
        play.client(asked(COORDINATORS_MAX + 1, version))
        play.violation(CloseReason.REQUEST_TOO_LARGE, saying="10001 coordinators")


def test_a_find_coordinator_request_is_kept_up_to_a_megabyte() -> None:
    long = "x" * 1000
    with Playbook() as play:
        play.forwards(asked(1000, 6, long))
    with Playbook() as play:
        play.client(asked(1100, 6, long))
        play.violation(CloseReason.REQUEST_TOO_LARGE, saying="split it")


def test_a_long_find_coordinator_answer_is_not_remembered() -> None:
    connection = new_connection()
    wire = Wire(connection)
    count = CACHED_BYTES_MAX // 10
    calls = []
    for _ in range(2):
        wire.feed(0, client=asked(count, 6))
        calls.append(calls_of(lambda: wire.feed(0, broker=answer(count, 6))))
    assert calls[1] > calls[0] / 2
    assert calls[1] < 100 * count


def test_a_find_coordinator_request_that_ends_before_its_keys_goes_to_the_broker() -> None:
    connection = new_connection()
    with Playbook(connection=connection) as play:
        cut = asked(1, 6)[4:-4]
        frame = len(cut).to_bytes(4, "big") + cut
        play.forwards(frame)
    assert connection.counters.requests_unread == {ApiKey.FIND_COORDINATOR: 1}
