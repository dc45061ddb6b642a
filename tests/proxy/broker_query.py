"""A broker query for DeleteTopics: its requests, its responses, and a connection that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.proxy.wire import new_connection
from tests.wire.frames import request, response
from weir.protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.broker_query import BrokerQuery, ask
from weir.proxy.handlers.decisions import FORWARD, WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import Context
from weir.proxy.handlers.plans import Plans

VERSION: Final = 5
"""Of DeleteTopics, the request that queries are run for here."""


def delete(correlation_id: int = 1, name: str = "t", client_id: bytes | None = b"app") -> bytes:
    return request(DeleteTopicsRequest(topic_names=[name]), VERSION, correlation_id, client_id)


def deleted(correlation_id: int = 1, text: str | None = None) -> bytes:
    return response(DeleteTopicsResponse(responses=[result(text)]), VERSION, correlation_id)


def result(text: str | None = None) -> DeleteTopicsResponse.DeletableTopicResult:
    return DeleteTopicsResponse.DeletableTopicResult(name="t", error_message=text)


def asked(correlation_id: int = 1, number: int = 0, client_id: bytes | None = b"app") -> bytes:
    topic = MetadataRequest.MetadataRequestTopic(name=f"topic {number}")
    return request(MetadataRequest(topics=[topic]), 9, correlation_id, client_id)


def answer(correlation_id: int = 1, cluster: str = "c") -> bytes:
    return response(MetadataResponse(cluster_id=cluster), 9, correlation_id)


def questions(count: int) -> BrokerQuery:
    text = None
    for number in range(count):
        topic = MetadataRequest.MetadataRequestTopic(name=f"topic {number}")
        text = (yield from ask(MetadataRequest(topics=[topic]), 9, MetadataResponse)).cluster_id
    return DeleteTopicsResponse(responses=[result(text)])


def connection_of(
    query: Callable[[], BrokerQuery], *, whole: bool = True, again: bool = False, **kwargs: int | bool
) -> Connection:
    """A connection in which DeleteTopics starts this query; if `again`, the first time only."""
    plans = Plans(Counters())
    plan = plans.make(20, VERSION)
    plan.whole = True

    def admit(_caller: Context, _data: bytearray, _frame: int, _end: int, complete: bool) -> Decision | Wait:
        if not complete:
            return WAIT
        if again and plan.requests < 0:
            return FORWARD
        plan.requests -= again
        return Query(query(), again=again)

    plan.admit = admit
    return new_connection(plans=plans, **kwargs)  # type: ignore[arg-type]  # bounds, whose types differ
