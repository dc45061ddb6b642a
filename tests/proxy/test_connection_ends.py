"""How connections end, as playbooks: either side closes its half, a deadline comes, the process is stopped;
in every state, and with all that may be under way then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.matrix import check_each
from tests.proxy.playbook import Playbook
from tests.proxy.sasl import handshake, shaken
from tests.proxy.throttled import throttled_quotas
from tests.proxy.wire import FIRST_HOLD_MS, new_connection, quota_table
from tests.quotas.changes import put_in_force
from tests.wire.frames import padded, request, response
from tests.wire.messages import fetch, fetched, least, ping, pong, produce, produced
from weir.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.ending import LINGER_MS
from weir.proxy.connection.state import State
from weir.proxy.handlers.broker_query import BrokerQuery, Pending, ask
from weir.proxy.handlers.decisions import Query

SMALL_BYTES: Final = 1000
"""A buffer that long responses do not fit in."""
CLOSED: Final = CloseReason.CLIENT_CLOSED


# A client that closes its half


def test_a_client_that_ends_with_nothing_under_way_is_closed_at_once() -> None:
    with Playbook() as play:
        play.client_ends()
        play.closed(CLOSED)


def test_a_client_that_ends_gets_all_its_responses() -> None:
    with Playbook() as play:
        play.client_ends(ping(1), ping(2))
        play.to_broker(ping(1), ping(2))
        play.returns(pong(1))
        play.at(LINGER_MS - 1).returns(pong(2))
        play.closed(CLOSED)


def test_a_client_that_ends_is_closed_when_its_broker_has_been_silent_for_30_seconds() -> None:
    with Playbook() as play:
        play.forwards(ping(1), ping(2))
        play.at(500).client_ends()
        assert play.tick() == 500 + 30_000
        play.closed(CLOSED, saying="2 requests unanswered")


def test_a_client_that_has_ended_is_closed_when_a_response_stops_in_the_middle() -> None:
    answer = padded(pong(1), 5000)
    with Playbook(buffer_bytes=SMALL_BYTES) as play:
        play.client_ends(ping(1))
        play.to_broker(ping(1))
        play.at(100).returns(answer[:4000])
        assert play.tick() == 100 + LINGER_MS
        play.closed(CLOSED)


def test_a_request_that_its_client_has_cut_is_not_waited_for() -> None:
    with Playbook() as play:
        play.client(ping(1), ping(2)[:9])
        play.to_broker(ping(1))
        play.client_ends()
        play.returns(pong(1))
        play.closed(CLOSED)


# A client that closes its half while it waits


@pytest.mark.parametrize("acks", [0, 1])
def test_a_held_first_produce_request_reaches_the_broker_though_its_client_has_ended(acks: int) -> None:
    """Fault 2 of issue 16: none of its bytes did. It is charged, too."""
    asked, quotas = produce(1, 500, acks=acks), throttled_quotas(produce_s=60)
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        play.client(asked)
        play.muted_until(FIRST_HOLD_MS)
        play.at(10).client_ends()
        play.at(FIRST_HOLD_MS - 1)
        play.silent()
        assert play.tick() == FIRST_HOLD_MS
        play.to_broker(asked)
        (budget,) = quotas.produce
        assert budget.charged == 70_000 + 500
        play.muted_until(budget.throttled_until_ms)
        if acks:
            left_ms = budget.throttled_until_ms - FIRST_HOLD_MS
            play.returns(produced(1), told=produced(1, throttle_ms=left_ms))
        play.closed(CLOSED)


def test_a_held_first_produce_request_in_two_parts_reaches_the_broker_though_its_client_has_ended() -> None:
    """The first part ends within what decides about the request, or behind that."""
    for cut in (5, 20, 400):
        asked = produce(1, 500, acks=0)
        with Playbook(connection=new_connection(quotas=throttled_quotas(produce_s=3))) as play:
            play.client(asked[:cut])
            play.muted_until(play.connection.throttled_until_ms)
            play.client_ends(asked[cut:])
            play.muted_until(3000)
            play.at(3000)
            play.to_broker(asked)
            play.muted_until(play.connection.throttled_until_ms)
            play.closed(CLOSED)


def test_all_acks_0_requests_behind_a_throttle_reach_the_broker_though_their_client_has_ended() -> None:
    """Each of them throttles the next one anew."""
    asked = [produce(number, 30_000, acks=0) for number in range(5)]
    with Playbook(quota_table(produce=1000)) as play:
        play.client_ends(*asked)
        play.to_broker(asked[0])
        for frame in asked[1:]:
            play.muted_until(play.connection.throttled_until_ms)
            play.at(play.connection.throttled_until_ms)
            play.to_broker(frame)
        play.muted_until(play.connection.throttled_until_ms)
        play.closed(CLOSED)
        (budget,) = play.connection.quotas.produce
        assert budget.charged == 5 * 30_000


def test_a_throttled_client_that_ends_is_closed_before_its_throttle_is_over_if_its_broker_is_silent() -> None:
    with Playbook(quota_table(produce=1000)) as play:
        play.client_ends(produce(1, 70_000))
        play.to_broker(produce(1, 70_000))
        play.muted_until(60_000)
        assert play.tick() == LINGER_MS
        play.closed(CLOSED, saying="1 requests unanswered")


def test_a_request_behind_a_throttle_reaches_a_broker_that_has_been_silent_meanwhile() -> None:
    """The client has waited for its first response for longer than it is kept otherwise."""
    with Playbook(quota_table(produce=1000)) as play:
        play.client_ends(produce(1, 70_000), produce(2, 500, acks=0))
        play.to_broker(produce(1, 70_000))
        play.muted_until(60_000)
        play.at(LINGER_MS)
        play.silent()
        play.at(60_000)
        play.to_broker(produce(2, 500, acks=0))
        assert play.tick() == 60_000 + LINGER_MS
        play.closed(CLOSED, saying="1 requests unanswered")


@pytest.mark.parametrize("read", [False, True])
def test_requests_that_came_after_a_throttle_reach_the_broker_though_their_client_has_ended(
    read: bool,
) -> None:
    """They lie in the socket's buffer, unless they came with the request that was throttled."""
    first, second = produce(1, 12_106, acks=0), produce(2, 50, acks=0)
    with Playbook(quota_table(produce=1000)) as play:
        play.client(first, *[second] * read)
        play.to_broker(first)
        play.muted_until(2106)
        play.client_ends(*[second] * (not read))
        play.at(2105)
        play.silent()
        assert play.tick() == 2106
        play.to_broker(second)
        play.muted_until(play.connection.throttled_until_ms)
        play.closed(CLOSED)


def test_a_client_that_leaves_unread_requests_is_closed_if_its_broker_is_silent() -> None:
    """They would be read only after the response."""
    with Playbook(quota_table(fetch=1e6)) as play:
        play.forwards(fetch(1))
        play.at(100).client_ends(produce(2, 500, acks=0))
        assert play.wire.waiting_bytes == len(produce(2, 500))
        assert play.tick() == 100 + LINGER_MS
        play.closed(CLOSED, saying="1 requests unanswered")


# Broker queries, and responses that Weir prepares

TOPICS: Final = MetadataRequest(topics=[])
DELETE: Final = request(DeleteTopicsRequest(topic_names=["t"]), 1)
DELETED: Final = response(DeleteTopicsResponse(), 1)


def querying(questions: int = 1) -> Connection:
    """A connection that asks the broker these questions before it answers DeleteTopics itself."""

    def query() -> BrokerQuery:
        for _ in range(questions):
            yield from ask(TOPICS, 4, MetadataResponse)
        return DeleteTopicsResponse()

    connection = new_connection()
    connection.plans.make(20, 1).admit = lambda *_arguments: Query(query())
    return connection


def deferring() -> tuple[Connection, Callable[[], None]]:
    """A connection whose response to DeleteTopics is prepared elsewhere, and the event that it is ready."""
    pending = Pending()

    def query() -> BrokerQuery:
        yield pending
        return DELETED

    connection = new_connection()
    connection.plans.make(20, 1).admit = lambda *_arguments: Query(query())
    return connection, pending.done


def test_a_client_that_ends_while_its_response_is_prepared_gets_it() -> None:
    connection, ready = deferring()
    with Playbook(connection=connection) as play:
        play.client_ends(DELETE, ping(2))
        play.waits(State.QUERYING)
        play.at(20_000).wake(ready)
        play.to_client(DELETED)
        play.to_broker(ping(2))
        play.returns(pong(2))
        play.closed(CLOSED)


def test_a_client_that_ends_is_closed_after_30_seconds_if_its_response_is_not_prepared() -> None:
    connection, ready = deferring()
    with Playbook(connection=connection) as play:
        play.client_ends(DELETE)
        assert play.tick() == LINGER_MS
        play.closed(CLOSED, saying="1 requests unanswered")
        connection.end(LINGER_MS)
        play.wake(ready)
        play.silent()


def test_each_byte_of_a_brokers_answer_to_a_query_is_progress_for_a_client_that_has_ended() -> None:
    asked, answer = request(TOPICS, 4), response(MetadataResponse(), 4)
    with Playbook(connection=querying(2)) as play:
        play.client_ends(DELETE)
        play.to_broker(asked)
        play.at(20_000).broker(answer)
        play.to_broker(asked)
        play.at(40_000).broker(answer[:1])
        play.at(60_000).broker(answer[1:])
        play.to_client(DELETED)
        play.closed(CLOSED)


def test_a_response_that_is_prepared_waits_for_the_one_before_it() -> None:
    connection, ready = deferring()
    with Playbook(connection=connection) as play:
        play.client(ping(1), DELETE, ping(2))
        play.to_broker(ping(1))
        play.wake(ready)
        play.silent()
        play.broker(pong(1))
        play.to_client(pong(1), DELETED)
        play.to_broker(ping(2))


def test_a_throttle_lasts_beyond_a_response_that_is_prepared() -> None:
    connection, ready = deferring()
    put_in_force(connection.quotas, quota_table(produce=1000))
    with Playbook(connection=connection) as play:
        play.forwards(produce(1, 12_000, acks=0))
        play.muted_until(2000)
        play.at(2000).client(DELETE, produce(2, 2000, acks=0), ping(3))
        play.waits(State.QUERYING)
        play.at(2500).wake(ready)
        play.to_client(DELETED)
        play.to_broker(produce(2, 2000, acks=0))
        play.muted_until(play.connection.throttled_until_ms)
        play.waits(State.THROTTLED)
        play.tick()
        play.to_broker(ping(3))


# A broker that closes its half


def test_a_broker_that_ends_while_records_are_taken_out_closes_the_connection() -> None:
    """The client gets nothing of a response that is not known to its end."""
    connection = new_connection(quotas=throttled_quotas(fetch_s=60), buffer_bytes=SMALL_BYTES)
    with Playbook(connection=connection) as play:
        play.client(fetch(1))
        play.to_broker(least(1))
        play.broker_ends(fetched(1, 9000)[:-1])
        play.closed(CloseReason.BROKER_CLOSED)
        connection.end(5)
        (budget,) = connection.quotas.fetch
        assert budget.charged == 70_000


# Drain: what has begun to arrive is completed, and nothing else begun


def in_state(state: State, behind: bytes = b"") -> tuple[Playbook, bytes, bytes]:
    """Return a connection in this state with a request under way, whose answer by the broker leads to this
    response. Bytes behind the request were read with it.
    """
    if state is State.OPEN:
        play, asked, answer, told = Playbook(), ping(1), pong(1), pong(1)
    elif state is State.THROTTLED:
        play, asked, answer = Playbook(quota_table(produce=1000)), produce(1, 12_106), produced(1)
        told = produced(1, throttle_ms=2106)
    elif state is State.SERIAL:
        play, asked, answer = Playbook(quota_table(fetch=1e6)), fetch(1), fetched(1, 10)
        told = answer
    elif state is State.AUTHENTICATING:
        play, asked, answer, told = Playbook(), handshake("PLAIN"), shaken(), shaken()
    else:
        play, asked, answer = Playbook(connection=querying()), DELETE, response(MetadataResponse(), 4)
        told = DELETED
    play.client(asked, behind)
    play.to_broker(request(TOPICS, 4) if state is State.QUERYING else asked)
    play.muted_until(play.connection.throttled_until_ms)
    play.waits(state)
    return play, answer, told


UNDER_WAY: Final = (State.OPEN, State.THROTTLED, State.SERIAL, State.AUTHENTICATING, State.QUERYING)


def test_draining_completes_the_requests_under_way_in_every_state_and_takes_no_others() -> None:
    def check(state: State) -> None:
        play, answer, told = in_state(state, b"" if state is State.OPEN else ping(2) + ping(3)[:5])
        with play:
            if state is State.OPEN:
                play.client(ping(3)[:5])
            play.drain()
            play.waits(State.DRAINING)
            play.drain()
            play.client(ping(3)[5:], ping(4))
            play.returns(answer, told=told)
            if state is not State.OPEN:
                play.to_broker(ping(2))
                play.returns(pong(2))
            play.to_broker(ping(3))
            play.returns(pong(3))
            play.closed(CloseReason.DRAINED)

    check_each(UNDER_WAY, check)
    assert set(UNDER_WAY) == set(State) - {State.DRAINING, State.CLOSED}


def test_a_client_and_a_broker_may_end_while_draining_in_every_state() -> None:
    def check(state: State) -> None:
        play, answer, told = in_state(state)
        with play:
            play.drain()
            play.client_ends()
            play.returns(answer, told=told)
            play.closed(CLOSED)
        play, _answer, _told = in_state(state)
        with play:
            play.drain()
            play.broker_ends()
            play.closed(CloseReason.BROKER_CLOSED)

    check_each(UNDER_WAY, check)


def test_draining_completes_a_response_that_is_prepared() -> None:
    connection, ready = deferring()
    with Playbook(connection=connection) as play:
        play.client(DELETE)
        play.drain()
        play.wake(ready)
        play.to_client(DELETED)
        play.closed(CloseReason.DRAINED)


BEHIND: Final = [produce(number, 30_000, acks=0) for number in range(1, 5)]
"""Requests of a client that does not wait. Each throttles the next one."""


def test_what_a_process_that_ends_has_read_of_acks_0_goes_on_at_once_and_is_charged() -> None:
    """Issue 40, point 16: four take-overs lost 2,857 of 5,129 records of a throttled producer."""
    with Playbook(quota_table(produce=1000)) as play:
        play.client(*BEHIND[:-1], BEHIND[-1][:9000])
        play.to_broker(BEHIND[0])
        play.muted_until(play.connection.throttled_until_ms)
        play.at(50).drain()
        play.to_broker(*BEHIND[1:-1], BEHIND[-1][:9000])
        play.client(BEHIND[-1][9000:], produce(5, 100, acks=0))
        play.to_broker(BEHIND[-1][9000:])
        play.closed(CloseReason.DRAINED)
        (budget,) = play.connection.quotas.produce
        assert budget.charged == 4 * 30_000
        assert budget.throttled_until_ms > 100_000, "the client's next connection waits for all of it"


def test_what_was_read_of_acks_0_obeys_its_throttles_if_only_its_connection_ends() -> None:
    with Playbook(quota_table(produce=1000)) as play:
        play.client(*BEHIND)
        play.to_broker(BEHIND[0])
        play.muted_until(play.connection.throttled_until_ms)
        play.drain(CloseReason.CONNECTION_AGE)
        for frame in BEHIND[1:]:
            due_ms = play.connection.throttled_until_ms
            assert play.tick() == due_ms
            play.to_broker(frame)
            play.muted_until(play.connection.throttled_until_ms)
        play.closed(CloseReason.CONNECTION_AGE)


def test_first_requests_that_are_held_go_on_if_the_process_ends() -> None:
    asked = [produce(1, 500, acks=0), produce(2, 500)]
    with Playbook(connection=new_connection(quotas=throttled_quotas(produce_s=60))) as play:
        play.client(*asked)
        play.muted_until(FIRST_HOLD_MS)
        play.drain()
        play.to_broker(*asked)
        play.returns(produced(2), told=produced(2, throttle_ms=61_000))
        play.closed(CloseReason.DRAINED)


def test_a_closed_connection_stays_closed() -> None:
    with Playbook() as play:
        play.client_ends()
        play.closed(CLOSED)
        play.drain()
        play.waits(State.CLOSED)
        play.broker_ends(pong(1))
        play.client(ping(1))
        play.waits(State.CLOSED)
