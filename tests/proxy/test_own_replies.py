"""A connection gets few replies of Weir's own and few new client-ids per turn, and no reply while it does not
read them.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.rigs import Rig
from tests.proxy.wire import new_connection
from tests.wire.frames import padded, split, unknown_request
from tests.wire.messages import ping, pong, produce
from weir.protocol.api import ApiKey
from weir.proxy.connection.effects import TURN_FRAMES
from weir.proxy.connection.inbound import LOOK_UP_FRAMES, REPLY_FRAMES
from weir.proxy.connection.waits import NONE, client_wait
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable

MAX: Final = 40
MANY: Final = 95
PER_TURN: Final = TURN_FRAMES // REPLY_FRAMES
ASKED: Final = b"".join(unknown_request(ApiKey.API_VERSIONS, 99, number) for number in range(MANY))


def test_requests_beyond_those_of_a_turn_are_all_answered_in_order() -> None:
    with Playbook(connection=new_connection(in_flight_max=MAX)) as play:
        play.at(1).client(ASKED)
        answers = split(bytes(play.wire.to_client))
        play.wire.to_client.clear()
        assert [int.from_bytes(answer[4:8], "big") for answer in answers] == list(range(MANY))


def test_a_reply_behind_a_response_goes_out_when_the_kernel_has_passed_the_responses_last_byte() -> None:
    """A planted bug, a `passed` that wakes no reply, was not found."""
    connection = new_connection()
    asked = bytearray(ping(1) + unknown_request(ApiKey.API_VERSIONS, 99, 2))
    head = bytearray(padded(pong(1), 300_000)[:100])
    broker = connection.broker_end
    connection.receive(connection.client_end, asked, memoryview(asked), len(asked), 7)
    connection.receive(broker, head, memoryview(head), len(head), 7)
    assert len(connection.effects.to_client) == 1
    connection.passed(broker, connection.passable_bytes(broker) - 1, 7)
    assert len(connection.effects.to_client) == 1
    connection.passed(broker, 1, 7)
    assert [int.from_bytes(each[4:8], "big") for each in connection.effects.to_client[1:]] == [2]


def test_a_relay_answers_a_pipeline_of_own_replies_without_further_events() -> None:
    rig = Rig(connection=new_connection(in_flight_max=MAX))
    try:
        rig.until(1)
        rig.send(rig.client, ASKED)
        answers, turns = b"", 0
        while len(split(answers)) < MANY and turns < 2 * MANY // PER_TURN:
            rig.turn()
            part = split(rig.take(rig.client))
            assert len(part) <= PER_TURN
            answers += b"".join(part)
            turns += 1
        assert len(split(answers)) == MANY
    finally:
        rig.close()


def test_no_replies_are_made_for_a_client_that_does_not_read_them() -> None:
    rig = Rig(connection=new_connection(in_flight_max=MAX))
    try:
        rig.until(1)
        asked = ASKED * 200
        for _ in range(100):
            asked = rig.send(rig.client, asked)
            rig.turn()
        assert asked, "no further request is read"
        assert 0 < len(rig.connection.client_end.unsent) <= MAX * len(split(rig.take(rig.client))[0])
    finally:
        rig.close()


@pytest.mark.parametrize("key", [QuotaKey.REQUEST_PERCENTAGE, QuotaKey.PRODUCER_BYTE_RATE])
def test_a_turn_looks_up_few_new_client_ids(key: QuotaKey) -> None:
    connection = new_connection(QuotaTable({(Entity(client_id=DEFAULT), key): 1e9}))
    frames = [produce(number, 60, client_id=b"app-%02d" % number) for number in range(MANY)]
    asked = bytearray(b"".join(frames))
    connection.receive(connection.client_end, asked, memoryview(asked), len(asked), 7)
    assert 0 < len(connection.in_flight) <= TURN_FRAMES // LOOK_UP_FRAMES
    connection.clock.turn += 1
    assert client_wait(connection, 7) == NONE, "the next turn goes on"
