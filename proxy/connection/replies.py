"""Responses that Weir itself sends to clients, and queries that Weir sends to the broker.

All responses go to the client in the order of the requests. While a query runs, no request is taken from the
client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weir.protocol.framing import LENGTH_BYTES
from weir.proxy.connection.charges import LocalResponse, sent
from weir.proxy.connection.in_flight import LOCAL, NO_CORRELATION_ID, PAUSED, TOKEN, RequestInFlight
from weir.proxy.connection.state import Trigger
from weir.proxy.handlers import plan as plans

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.broker_query import RunningQuery


def expect_token(connection: Connection, *, serial: bool) -> None:
    """Expect the broker's response to a bare SASL token; if `serial`, take no bytes from the client before
    that response.
    """
    connection.in_flight.append(RequestInFlight(plans.TOKEN, 0, TOKEN))
    if serial:
        connection.transition(Trigger.SASL_REQUEST)


def reply(
    connection: Connection, correlation_id: int, frame: bytes, local: LocalResponse | None = None
) -> None:
    """Send `frame` (a response of Weir's own) to the client as soon as all earlier requests are answered."""
    usage_counters = None
    if local is not None:
        local.charge(len(frame))
        frame, usage_counters = local.told(frame), local.usage_counters
    record = RequestInFlight(plans.LOCAL, correlation_id, LOCAL, usage_counters)
    record.reply = frame
    connection.in_flight.append(record)
    send_local(connection)


def begin_query(connection: Connection, run: RunningQuery, local: LocalResponse | None = None) -> None:
    """Begin a query. Its first request to the broker is sent behind the bytes that already wait to be sent.
    Take no request from the client until the query has ended.
    """
    question = run.go_on()
    if question is not None or run.paused:
        _wait_for(connection, run, question, local)
        connection.transition(Trigger.QUERY)
    elif run.reply is not None:
        reply(connection, run.correlation_id, run.reply, local)


def answer_query(
    connection: Connection, record: RequestInFlight, data: bytearray, frame: int, end: int
) -> bytes:
    """Pass the broker's response `data[frame:end]` to the query of `record`, and send the query's next
    request to the broker if it has one. Return the client's response frame if the query has ended with one,
    else `b""`.

    Each request of a query to the broker has a record of its own, behind those of earlier requests. Raises
    ProtocolError if the broker's response is malformed.
    """
    run, local = record.query, record.local
    assert run is not None
    record.local = None  # if the query fails below, do not charge it again
    if local is not None:
        local.charge_question(*run.asked, run.asked_length, end - frame - LENGTH_BYTES)
    question = run.answer(data, frame, end)
    connection.effects.change()
    if question is not None or run.paused:
        _wait_for(connection, run, question, local)
        return b""
    if run.reply is None:
        return b""
    return run.reply if local is None else local.settled(run.reply)


def _wait_for(
    connection: Connection, run: RunningQuery, question: bytes | None, local: LocalResponse | None
) -> None:
    """Send the next request of the query to the broker. If the query has paused, have it continue in the next
    pass of the transport's loop, or after the work that it waits for.
    """
    record = RequestInFlight(plans.QUERY, NO_CORRELATION_ID, PAUSED)
    record.query, record.local = run, local
    connection.in_flight.append(record)
    _send_question(connection, record, run, question)


def _send_question(
    connection: Connection, record: RequestInFlight, run: RunningQuery, question: bytes | None
) -> None:
    if question is not None:
        record.ask(run.correlation_id)
        connection.effects.to_broker.append(question)
    elif run.pending is None or run.pending.is_done:
        connection.end_turn(connection.client_end)
    else:
        run.pending.on_done(partial(_resume, connection))


def _resume(connection: Connection) -> None:
    """Have a query continue in the next pass of the transport's loop: the work that it has waited for is
    done.
    """
    connection.end_turn(connection.client_end)
    connection.resume()


def go_on(connection: Connection, record: RequestInFlight) -> None:
    """Continue a paused query. `record` is the last request in flight, and belongs to the query. Raises
    ProtocolError if a message cannot be decoded.
    """
    run, local = record.query, record.local
    assert run is not None
    question = run.go_on()
    if question is not None or run.paused:
        _send_question(connection, record, run, question)
        return
    if run.reply is None:
        connection.in_flight.pop()
    elif local is None or run.asked_length:
        record.answer(run.reply if local is None else local.settled(run.reply))
    else:
        connection.in_flight.pop()
        reply(connection, run.correlation_id, run.reply, local)
    connection.answered()


def send_local(connection: Connection) -> None:
    """Send the responses of Weir's own that are ready and whose earlier requests are all answered."""
    in_flight = connection.in_flight
    while in_flight and not connection.broker_end.rest_bytes and in_flight[0].state == LOCAL:
        record = in_flight.popleft()
        if record.usage_counters is not None:
            sent(connection, record.usage_counters, len(record.reply))
        connection.effects.to_client.append(record.reply)


def abandon_query(record: RequestInFlight) -> None:
    """End the query of a client that has closed its connection. If a request of the query is at the broker,
    charge the client for it; if the query has sent none, charge the client's own request.
    """
    run, local = record.query, record.local
    assert run is not None
    if local is not None:
        if record.state != PAUSED:
            local.charge_question(*run.asked, run.asked_length, 0)
        elif not run.asked_length:
            local.charge(0)
    run.end()
