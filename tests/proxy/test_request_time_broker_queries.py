"""Request time of what is not simply forwarded: queries, answers of Weir's own, uplifted versions."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.matrix import in_one_test
from tests.mutations.requests import Create, Delete, Grow, Topic
from tests.proxy.broker_query import VERSION, delete, deleted
from tests.proxy.broker_query import answer as told
from tests.proxy.broker_query import asked as question
from tests.proxy.broker_versions import broker_of
from tests.proxy.client_quotas import Managed, alter, describe, entry
from tests.proxy.mutation_cluster import Cluster, limited
from tests.proxy.playbook import Playbook
from tests.proxy.request_costs import EACH_US, LIMIT_US, charged_us, costs, spend, time_table, timed
from tests.proxy.uplifted import RAISED
from tests.proxy.wire import Wire, new_connection
from tests.quotas.changes import put_in_force
from tests.wire.frames import body_of, head_of, request, response, split
from tests.wire.messages import ping, pong
from weir.protocol.codec import request_type, response_type
from weir.protocol.messages import (
    AlterClientQuotasResponse,
    DeleteTopicsResponse,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.broker_query import BrokerQuery, ask
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import Context
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, QuotaTable
from weir.quotas.costs.request_costs import ApiCost

COSTS: Final = costs(
    {"Metadata": ApiCost(us=100.0, us_per_response_kb=1000.0), "DeleteTopics": ApiCost(us=7.0)}
)


def questions(count: int, *, again: bool = False) -> BrokerQuery:
    """Ask so many questions about metadata, then answer, unless the request is to be judged again."""
    for number in range(count):
        topic = MetadataRequest.MetadataRequestTopic(name=f"topic {number}")
        yield from ask(MetadataRequest(topics=[topic]), 9, MetadataResponse)
    result = DeleteTopicsResponse.DeletableTopicResult(name="t")
    return None if again else DeleteTopicsResponse(responses=[result])


def connection_of(count: int, *, again: bool = False) -> Connection:
    """A connection in which DeleteTopics is a query of so many questions; if `again`, before it goes on."""
    plans = Plans(Counters(), costs=COSTS)
    plan = plans.make(20, VERSION)
    begun = False

    def admit(_caller: Context, _data: bytearray, _frame: int, _end: int, complete: bool) -> Decision | Wait:
        nonlocal begun
        if not complete:
            return WAIT
        if again and begun:
            return FORWARD
        begun = True
        return Query(questions(count, again=again), again=again)

    plan.admit, plan.whole = admit, True
    return new_connection(time_table(), plans=plans)


def length_of(frame: bytes) -> int:
    return len(frame) - 4


def reported(frame: bytes, throttle_ms: int) -> bytes:
    message = body_of(frame, DeleteTopicsResponse, VERSION)
    message.throttle_time_ms = throttle_ms
    return response(message, VERSION, int.from_bytes(frame[4:8]))


# Queries


def test_a_request_with_broker_queries_costs_only_the_queries() -> None:
    each = 100 + length_of(told(7))  # 1000 µs per kB
    with Playbook(connection=connection_of(2)) as play:
        play.client(delete(7))
        play.to_broker(question(7, 0))
        assert charged_us(play.connection) == 0
        play.broker(told(7))
        play.to_broker(question(7, 1))
        assert charged_us(play.connection) == each
        play.returns(told(7), told=deleted(7))
        assert charged_us(play.connection) == 2 * each


def test_a_response_after_broker_queries_has_the_remaining_throttle_time() -> None:
    connection = connection_of(2)
    spend(connection, LIMIT_US - length_of(told(7)) - 50)  # the first question is 50 µs too many
    with Playbook(connection=connection) as play:
        play.client(delete(7), ping(8))
        play.to_broker(question(7, 0))
        play.broker(told(7))
        play.to_broker(question(7, 1))
        play.muted_until(500)
        play.at(400)
        put_in_force(connection.quotas, time_table(1.0))  # the second is not
        play.returns(told(7), told=reported(deleted(7), 100))
        play.at(500)
        play.to_broker(ping(8))
        play.returns(pong(8))


def test_a_local_response_without_broker_queries_costs_as_its_request() -> None:
    connection = connection_of(0)
    spend(connection)
    with Playbook(connection=connection) as play:
        play.client(delete(7))
        play.to_client(reported(deleted(7), 70))  # 7 µs are 0.07 s over
        play.muted_until(70)
        assert charged_us(connection) == LIMIT_US + 7


def test_a_local_response_that_its_client_does_not_wait_for_is_charged_once() -> None:
    connection = connection_of(0)
    Wire(connection).feed(0, client=ping(6) + delete(7))
    assert charged_us(connection) == 7
    connection.end(0)
    assert charged_us(connection) == 7 + EACH_US  # the ping, which the broker answers nevertheless


def test_informative_broker_queries_are_charged_beside_the_request() -> None:
    connection = connection_of(1, again=True)
    with Playbook(connection=connection) as play:
        play.client(delete(7))
        play.to_broker(question(7, 0))
        play.broker(told(7))
        play.to_broker(delete(7))
        assert charged_us(connection) == 100 + length_of(told(7))
        play.returns(deleted(7))
        assert charged_us(connection) == 107 + length_of(told(7))


@pytest.mark.parametrize("answered", [0, 1])
def test_broker_queries_of_a_closed_connection_are_charged(answered: int) -> None:
    """Else clients would close before the answer."""
    connection = connection_of(2)
    wire = Wire(connection)
    wire.feed(0, client=delete(7))
    for _question in range(answered):
        wire.feed(0, broker=told(7))
    connection.end(0)
    assert charged_us(connection) == 100 * (answered + 1) + answered * length_of(told(7))


@pytest.mark.parametrize("mutation", [Create((Topic("new", 3),)), Grow((("old", 9),)), Delete(("old",))])
@pytest.mark.parametrize("mutation_rate", [0.1, 1.0, None])
def test_mutations_are_charged_each_broker_query(mutation: Any, mutation_rate: float | None) -> None:
    """Under a mutation quota they are queries, some of which end with nothing but questions."""
    cluster = Cluster(sizes={"old": 4})
    values = {**time_table(1.0).values, **limited(mutation_rate).values}
    cluster.quotas = BrokerQuotas.create(QuotaTable(values))
    cluster.plans = Plans(Counters(), costs=costs())
    for number in range(3):
        cluster.ask(0, mutation)
        (budget,) = cluster.quotas.request
        assert round(budget.charged * 10_000, 3) == EACH_US * len(cluster.controller.received), number


# Answers of Weir's own


def managed(quota_admin: Managed) -> Connection:
    connection = timed(manages_quotas=True)
    connection.plans.quota_admin, connection.client.peer = quota_admin, "10.9.8.7:4711"
    return connection


@pytest.mark.parametrize("version", [0, 1])
def test_describeclientquotas_costs_as_much_as_at_a_broker(version: int) -> None:
    """And its question whether the broker takes the client besides: 50 µs each."""
    connection = managed(Managed(QuotaTable()))
    spend(connection, LIMIT_US - EACH_US)
    wire = Wire(connection)
    wire.feed(0, client=request(describe(), version))
    assert bytes(wire.to_broker) == request(MetadataRequest(topics=[]), 1)
    wire.feed(0, broker=response(MetadataResponse(), 1))
    assert charged_us(connection) == LIMIT_US + EACH_US
    answer = body_of(bytes(wire.to_client), DescribeClientQuotasResponse, version)
    assert (answer.error_code, answer.throttle_time_ms) == (0, 500)
    assert connection.throttled_until_ms == 500


@pytest.mark.parametrize("version", [0, 1])
def test_denied_client_quota_requests_are_charged_request_time(version: int) -> None:
    connection = managed(Managed(denies="you may not"))
    spend(connection)
    wire = Wire(connection)
    wire.feed(0, client=request(describe(), version))
    answer = body_of(bytes(wire.to_client), DescribeClientQuotasResponse, version)
    assert (answer.error_code, answer.throttle_time_ms) == (31, 500)
    assert charged_us(connection) == LIMIT_US + EACH_US


@pytest.mark.parametrize("leaves", [False, True])
def test_a_request_that_waits_for_the_quota_store_is_charged_if_its_client_leaves(*, leaves: bool) -> None:
    """A broker charges it when it answers: LIMIT_US and 5 % in 10.3 s are over the limit for 200 ms."""
    quota_admin = Managed(answers=False)
    connection = managed(quota_admin)
    spend(connection, LIMIT_US - EACH_US)
    wire = Wire(connection)
    wire.feed(0, client=request(alter(entry({"client-id": "x"}, {"producer_byte_rate": 1.0})), 1) + ping(2))
    wire.feed(0, broker=response(MetadataResponse(), 1))
    (done,) = quota_admin.waiting
    wire.feed(300)
    if leaves:
        connection.end(300)
        done(None)
    else:
        wire.wake(300, lambda: done(None))
        answer = body_of(bytes(wire.to_client), AlterClientQuotasResponse, 1)
        assert (answer.throttle_time_ms, connection.throttled_until_ms) == (200, 500)
    assert charged_us(connection) == LIMIT_US + EACH_US


# Uplift


@in_one_test
@pytest.mark.parametrize(("release", "key", "version"), RAISED)
def test_uplifted_requests_are_charged_once_and_have_the_throttle_time(
    release: tuple[int, ...], key: int, version: int
) -> None:
    broker = broker_of(release)
    connection = timed(broker=broker, uplift=True)
    spend(connection)
    wire = Wire(connection)
    wire.feed(0, client=request(request_type(key)(), version))
    (asked,) = split(bytes(wire.to_broker))
    head = head_of(asked)
    assert head.version == broker[key].max
    wire.feed(0, broker=response(response_type(key)(), head.version))
    assert charged_us(connection) == LIMIT_US + EACH_US
    assert connection.throttled_until_ms == 500
    answer: Any = body_of(bytes(wire.to_client), response_type(key), version)
    assert answer.throttle_time_ms == 500


def test_the_throttle_of_a_broker_query_delays_the_response() -> None:
    """The broker's vouching is charged when it comes; what it was for is answered after the wait."""
    connection = managed(Managed(QuotaTable()))
    spend(connection)
    wire = Wire(connection)
    wire.exchange(0, request(describe(), 1), response(MetadataResponse(), 1))
    assert connection.throttled_until_ms == 500
    wire.feed(499)
    assert not wire.to_client
    wire.feed(500)
    answer = body_of(bytes(wire.to_client), DescribeClientQuotasResponse, 1)
    assert (answer.error_code, answer.throttle_time_ms) == (0, 500)
    assert charged_us(connection) == LIMIT_US + 2 * EACH_US
