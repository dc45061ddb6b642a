"""Responses that Weir gives in the broker's place, now or later, and queries that it asks the broker.

They take their turn among the broker's responses. While one is being prepared, or a query is asked, no
request is taken from the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.framing import LENGTH_BYTES
from proxy.connection.charges import LocalResponse, sent
from proxy.connection.in_flight import DEFERRED, LOCAL, QUERY, TOKEN, RequestInFlight
from proxy.connection.state import Event
from proxy.handlers import plan as plans

if TYPE_CHECKING:
    from proxy.connection.connection import Connection
    from proxy.handlers.broker_query import RunningQuery
    from proxy.handlers.deferred import Deferred


def expect_token(connection: Connection, *, serial: bool) -> None:
    """Wait for the answer to a bare SASL token; if `serial`, before any further token is taken."""
    connection.in_flight.append(RequestInFlight(plans.TOKEN, 0, TOKEN))
    if serial:
        connection.happen(Event.SASL_REQUEST)


def reply(
    connection: Connection, correlation_id: int, frame: bytes, local: LocalResponse | None = None
) -> None:
    """Answer a request in the broker's place, when its turn has come."""
    usage_counters = None
    if local is not None:
        local.charge(len(frame))
        frame, usage_counters = local.told(frame), local.usage_counters
    record = RequestInFlight(plans.LOCAL, correlation_id, LOCAL, usage_counters)
    record.reply = frame
    connection.in_flight.append(record)
    send_local(connection)


def defer(
    connection: Connection, correlation_id: int, deferred: Deferred, local: LocalResponse | None = None
) -> None:
    """Answer a request in the broker's place once the answer is ready; take no request meanwhile."""
    deferred.on_arrival(connection.wake)
    if local is not None:
        local.charge(0)
    record = RequestInFlight(plans.LOCAL, correlation_id, DEFERRED)
    record.deferred, record.local = deferred, local
    connection.in_flight.append(record)
    connection.happen(Event.QUERY)


def begin(connection: Connection, run: RunningQuery, local: LocalResponse | None = None) -> None:
    """Ask a query's first question, behind the bytes for the broker; take no request meanwhile."""
    question = run.begin()
    if question is not None:
        _ask(connection, run, question, local)
        connection.happen(Event.QUERY)
    elif run.reply is not None:
        reply(connection, run.correlation_id, run.reply, local)


def go_on(connection: Connection, record: RequestInFlight, data: bytearray, frame: int, end: int) -> bytes:
    """Give the query of `record` the answer `data[frame:end]`, and ask its next question, if any. Return the
    client's response frame, which is empty while there is none.

    The next question takes the place of the answered one, which is the only request in flight. Raises
    ProtocolError.
    """
    run, local = record.query, record.local
    assert run is not None
    record.local = None  # a query that fails here is charged no more
    if local is not None:
        local.charge_question(*run.asked, run.asked_length, end - frame - LENGTH_BYTES)
    question = run.answer(data, frame, end)
    connection.effects.change()
    if question is not None:
        _ask(connection, run, question, local)
        return b""
    if run.reply is None:
        return b""
    return run.reply if local is None else local.settled(run.reply)


def _ask(connection: Connection, run: RunningQuery, question: bytes, local: LocalResponse | None) -> None:
    connection.effects.to_broker.append(question)
    record = RequestInFlight(plans.QUERY, run.correlation_id, QUERY)
    record.query, record.local = run, local
    connection.in_flight.append(record)


def send_local(connection: Connection) -> None:
    """Send replies of Weir's own that have become the oldest outstanding response."""
    in_flight = connection.in_flight
    while in_flight and not connection.response_rest_bytes and LOCAL <= in_flight[0].kind <= DEFERRED:
        record = in_flight[0]
        frame = record.reply
        if record.deferred is not None:
            if record.deferred.frame is None:
                return
            frame = record.deferred.frame
            if record.local is not None:
                frame = record.local.settled(frame)
        in_flight.popleft()
        if record.usage_counters is not None:
            sent(connection, record.usage_counters, len(frame))
        connection.effects.to_client.append(frame)


def abandon(record: RequestInFlight) -> None:
    """Charge the question under way of a query whose client has gone, and end the query."""
    run, local = record.query, record.local
    assert run is not None
    if local is not None:
        local.charge_question(*run.asked, run.asked_length, 0)
    run.end()
