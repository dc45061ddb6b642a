"""Responses that Weir itself sends to clients, and queries that Weir sends to the broker.

All responses go to the client in the order of the requests. While a query runs, no request is taken from the
client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weir.protocol.framing import LENGTH_BYTES
from weir.proxy.connection.in_flight import (
    LOCAL,
    NEXT_OF_REQUEST,
    NO_CORRELATION_ID,
    RESPONSE,
    TOKEN,
    RequestInFlight,
)
from weir.proxy.connection.state import Trigger
from weir.proxy.handlers import plan as plans

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.broker_query import RunningQuery


def expect_token(connection: Connection, *, serial: bool) -> None:
    """Expect the broker's response to a bare SASL token; if `serial`, take no bytes from the client before
    that response.
    """
    connection.in_flight.append(RequestInFlight(plans.TOKEN, TOKEN))
    if serial:
        connection.transition(Trigger.SASL_REQUEST)


def reply(connection: Connection, record: RequestInFlight, frame: bytes) -> None:
    """Send `frame` (a response of Weir's own) to the client as soon as all earlier requests are answered."""
    record.charge(connection, len(frame))
    record.answer(frame, connection.now_ms)
    connection.in_flight.append(record)
    send_local(connection)


def begin_query(connection: Connection, record: RequestInFlight, run: RunningQuery) -> None:
    """Begin a query for the request of `record`. The query's first request to the broker is sent behind the
    bytes that already wait to be sent. Take no request from the client until the query has ended.
    """
    record.begin_query(run)
    connection.in_flight.append(record)
    question = run.go_on()
    _follow(connection, record, question)
    if question is not None or run.paused:
        connection.transition(Trigger.QUERY)
    else:
        send_local(connection)


def answer_query(
    connection: Connection, record: RequestInFlight, data: bytearray, frame: int, end: int
) -> None:
    """Pass the broker's response `data[frame:end]` to the query of `record`, the oldest request in flight.
    Raises ProtocolError if the response is malformed.
    """
    run = record.query
    assert run is not None
    record.state = NEXT_OF_REQUEST[record.state][RESPONSE]  # if the query fails below, do not charge it again
    record.charge_question(connection, end - frame - LENGTH_BYTES)
    question = run.answer(data, frame, end)
    connection.effects.change()
    _follow(connection, record, question)


def go_on(connection: Connection, record: RequestInFlight) -> None:
    """Continue a paused query. `record` is the last request in flight, and waits for the query. Raises
    ProtocolError if a message cannot be decoded.
    """
    assert record.query is not None
    _follow(connection, record, record.query.go_on())
    connection.answered()


def _follow(connection: Connection, record: RequestInFlight, question: bytes | None) -> None:
    """Do what the query of `record`, the latest request in flight, demands after its step: send its next
    request to the broker, wait, respond to the client, or decide about the client's request again.
    """
    run = record.query
    assert run is not None
    if question is not None:
        record.ask(run.correlation_id)
        connection.effects.to_broker.append(question)
    elif run.paused:
        record.correlation_id = NO_CORRELATION_ID
        if run.pending is None or run.pending.is_done:
            connection.end_turn(connection.client_end)
        else:
            run.pending.on_done(partial(_resume, connection))
    elif run.reply is None:
        connection.in_flight.pop()
    else:
        if not run.asked_length:  # requests that the query has sent were charged instead
            record.charge(connection, len(run.reply))
        record.answer(run.reply, connection.now_ms)


def _resume(connection: Connection) -> None:
    """Have a query continue in the next pass of the transport's loop: the work that it has waited for is
    done.
    """
    connection.end_turn(connection.client_end)
    connection.resume()


def send_local(connection: Connection) -> None:
    """Send the responses of Weir's own that are ready and whose earlier requests are all answered."""
    in_flight = connection.in_flight
    while in_flight and not connection.broker_end.rest_bytes and in_flight[0].state == LOCAL:
        record = in_flight.popleft()
        record.count_reply(connection.now_ms)
        connection.effects.to_client.append(record.reply)
