"""Replies that Weir makes itself count against the bound on a connection's unanswered requests."""

from __future__ import annotations

from typing import Final

from protocol.api import ApiKey
from proxy.connection.inbound import Inbound
from tests.proxy.playbook import Playbook
from tests.proxy.rigs import Rig
from tests.proxy.wire import new_connection
from tests.wire.frames import split, unknown_request

MAX: Final = 10
MANY: Final = 95
ASKED: Final = b"".join(unknown_request(ApiKey.API_VERSIONS, 99, number) for number in range(MANY))


def test_one_look_at_a_clients_bytes_makes_at_most_in_flight_max_replies() -> None:
    session = new_connection(in_flight_max=MAX)
    data = bytearray(ASKED)
    consumed = Inbound(session).judge(data, memoryview(data), len(data), 0)
    assert len(session.effects.to_client) == MAX
    assert consumed * MANY == len(ASKED) * MAX


def test_requests_beyond_the_bound_on_replies_are_judged_at_once_in_the_next_turn() -> None:
    session = new_connection(in_flight_max=MAX)
    data = bytearray(ASKED)
    Inbound(session).judge(data, memoryview(data), len(data), 7)
    assert session.effects.changed
    assert session.settle(7).deadline_ms == 7


def test_requests_beyond_the_bound_on_replies_are_all_answered_in_order() -> None:
    with Playbook(session=new_connection(in_flight_max=MAX)) as play:
        play.at(1).client(ASKED)
        answers = split(bytes(play.wire.to_client))
        play.wire.to_client.clear()
        assert [int.from_bytes(answer[4:8], "big") for answer in answers] == list(range(MANY))


def test_a_relay_answers_a_pipeline_of_own_replies_without_further_events() -> None:
    rig = Rig(session=new_connection(in_flight_max=MAX))
    try:
        rig.until(1)
        rig.send(rig.client, ASKED)
        answers, turns = b"", 0
        while len(split(answers)) < MANY and turns < 3 * MANY // MAX:
            rig.turn()
            part = split(rig.take(rig.client))
            assert len(part) <= 3 * MAX, "a turn looks at new bytes, at those that waited, and at a timer"
            answers += b"".join(part)
            turns += 1
        assert len(split(answers)) == MANY
    finally:
        rig.close()


def test_no_replies_are_made_for_a_client_that_does_not_read_them() -> None:
    rig = Rig(session=new_connection(in_flight_max=MAX))
    try:
        rig.until(1)
        asked = ASKED * 200
        for _ in range(100):
            asked = rig.send(rig.client, asked)
            rig.turn()
        assert asked, "no further request is read"
        assert 0 < len(rig.session.client_end.unsent) <= MAX * len(split(rig.take(rig.client))[0])
    finally:
        rig.close()
