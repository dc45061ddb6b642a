"""Arrivals of requests: the request that arrives in parts, which is forwarded meanwhile, and what happens
when a request has arrived completely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.errors import OversizedError, ProtocolError
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.charges import count_request
from weir.proxy.connection.in_flight import ARRIVED, ARRIVING, CHARGE, NEXT_OF_REQUEST, RequestInFlight
from weir.proxy.connection.state import CLOSED, NEXT, SASL_REQUEST, SERIAL_REQUEST
from weir.proxy.connection.usage_counters import CONSUMER, PRODUCER, TOPIC
from weir.proxy.handlers.decisions import FORWARD, Forward
from weir.proxy.handlers.plan import ARRIVAL_QUOTA, RESPONSE_QUOTA, ByteCounter, Plan, RequestByteCounter
from weir.proxy.handlers.unread import count_unread
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection

_UNSEEN: Final = bytearray()


class RequestInParts:
    """The request that arrives in parts. A connection has one such object, and uses it again for each."""

    __slots__ = ("forward", "length", "record")

    def __init__(self) -> None:
        self.record: RequestInFlight | None = None
        """The request that is being forwarded while its remaining bytes arrive; None between requests."""
        self.forward = FORWARD
        """Decision to forward the request. It says how the request is charged when its last byte has arrived.
        """
        self.length = 0
        """Frame length (bytes) of the request."""

    def end(self) -> None:
        """Forget the request, because the connection has closed."""
        self.record, self.forward = None, FORWARD  # a counter may refer to the connection: a cycle


def begin_request(
    connection: Connection, record: RequestInFlight, forward: Forward, length: int, stop: int, end: int
) -> int:
    """Begin to forward a request in parts, because the bytes from `end` up to its own end, `stop`, have not
    arrived, or because the turn had no time to count all those that have. Return the position behind the
    bytes to forward now.

    The head goes on at once, but nothing is charged before the last byte: a broker ignores an incomplete
    request, and a client could be charged for what it never sent.
    """
    arriving = connection.arriving
    record.state = ARRIVING
    arriving.record, arriving.forward, arriving.length = record, forward, length
    position = forward.counted_to or end
    connection.client_end.rest_bytes = stop - position
    if position < end:
        connection.end_turn(connection.client_end)
    return position


def finish_request(connection: Connection, data: bytearray, end: int) -> int:
    """Process the next bytes of the request in `Connection.arriving`, up to its last one. Return the position
    behind these bytes; 0 while the request's remaining bytes are held.

    The bytes are counted by topic before the last byte is forwarded. If they begin records of a topic
    over its rate, the last byte is held: a broker appends nothing before a request is complete.
    """
    if connection.client_end.held_until_ms > connection.now_ms:  # the relay has read on nevertheless
        connection.effects.change()
        return 0
    start, stop = 0, min(connection.client_end.rest_bytes, end)
    if connection.arriving.forward.byte_counter is not None and 1 < stop == connection.client_end.rest_bytes:
        start = _take_rest(connection, data, 0, stop - 1)
        is_held = connection.client_end.held_until_ms > connection.now_ms
        if connection.state == CLOSED or is_held or start < stop - 1:
            return start
    return _take_rest(connection, data, start, stop)


def _take_rest(connection: Connection, data: bytearray, start: int, stop: int) -> int:
    """Process `data[start:stop]`, the next bytes of the request in `Connection.arriving`. Return the position
    behind the processed bytes: `stop`, less if the turn is over, or 0 if the request is not forwarded.
    """
    arriving = connection.arriving
    record, forward = arriving.record, arriving.forward
    if record is not None and forward.byte_counter is not None:
        stop = _measure(connection, record.plan, forward.byte_counter, data, start, stop)
        forward = arriving.forward
    connection.client_end.rest_bytes -= stop - start
    if record is not None:
        if connection.state == CLOSED:  # the counter refuses the request: do not forward it
            return 0
        if connection.client_end.rest_bytes:
            if forward.byte_counter is not None:
                _hold_rest(connection, forward.byte_counter)
        else:
            arriving.record = None
            record.state = NEXT_OF_REQUEST[record.state][CHARGE if record.timed else ARRIVED]
            record.arrived_us = connection.clock.now_us
            if record.usage_counters is not None:
                answered, length = forward.answered, arriving.length
                count_request(connection, record.plan, record.usage_counters, length, answered=answered)
            serial = forward.serial or record.near
            finish_arrival(connection, record, forward, arriving.length, serial=serial)
    return stop


def passable_bytes(connection: Connection) -> int:
    """Return the number of bytes that come next and that nobody needs to see: the rest of a request that
    is being forwarded, unless its records are counted by topic.
    """
    if connection.arriving.record is None or connection.arriving.forward.byte_counter is not None:
        return 0
    return connection.client_end.rest_bytes


def passed(connection: Connection, count: int, now_ms: int) -> None:
    """Note that the next `count` bytes have been forwarded unseen; at most `passable_bytes`."""
    connection.now_ms = now_ms
    _take_rest(connection, _UNSEEN, 0, count)
    if not connection.client_end.rest_bytes:
        connection.effects.change()


def _hold_rest(connection: Connection, byte_counter: RequestByteCounter) -> None:
    """Hold the remaining bytes of the request that is being forwarded, if they begin with records of a
    topic over its rate.
    """
    hold_ms = byte_counter.first_hold_ms(connection)
    if hold_ms > 0:
        connection.hold_rest(hold_ms)


def _measure(
    connection: Connection, plan: Plan, byte_counter: ByteCounter, data: bytearray, start: int, stop: int
) -> int:
    """Count `data[start:stop]` of the request in parts per topic, and return the position behind the
    counted bytes. Weir forwards a malformed request without counting, and the broker refuses it.
    """
    try:
        counted_to = byte_counter.feed(data, start, stop)
    except OversizedError as oversized:
        connection.violate(CloseReason.REQUEST_TOO_LARGE, f"{oversized}: split the request")
        return stop
    except ProtocolError:
        note_unread(connection, plan)
        connection.arriving.forward = connection.arriving.forward.but()
        return stop
    if counted_to < stop:
        connection.end_turn(connection.client_end)
    return counted_to


def note_unread(connection: Connection, plan: Plan) -> None:
    client = connection.client
    count_unread(connection.counters, plan.api_key, plan.version, client.user, client.peer)


def finish_arrival(
    connection: Connection, record: RequestInFlight, forward: Forward, length: int, *, serial: bool
) -> None:
    """Charge a request of this frame length (bytes) that has arrived completely, and record it as in
    flight. With `serial`, take the client's next request only after the response.
    """
    plan = record.plan
    plan.requests += 1
    ledger = connection.client.ledger
    if forward.charged:
        for charge in plan.on_arrival:
            throttle_ms = charge(ledger, length, connection.now_ms)
            if throttle_ms > 0:
                _throttle(connection, record, throttle_ms, ARRIVAL_QUOTA, PRODUCER)
    if forward.byte_counter is not None:
        throttle_ms = forward.byte_counter.charge(connection.now_ms)
        if throttle_ms > 0:
            _throttle(connection, record, throttle_ms, forward.byte_counter.quota, TOPIC)
    if forward.throttle_ms:
        _throttle(connection, record, forward.throttle_ms, RESPONSE_QUOTA, CONSUMER)
    if record.until_ms and (plan.throttle is None or not forward.answered):
        connection.tell_next(record.until_ms)
    if not forward.answered:
        return
    record.byte_counter = forward.response_counter
    if forward.charged and plan.on_response:
        record.ledger = ledger
    if record.ledger is not None or record.until_ms or record.byte_counter is not None:
        record.state = NEXT_OF_REQUEST[record.state][CHARGE]
    connection.in_flight.append(record)
    if serial:
        connection.state = NEXT[connection.state][SASL_REQUEST if forward.sasl else SERIAL_REQUEST]


def _throttle(
    connection: Connection, record: RequestInFlight, throttle_ms: int, quota: QuotaKey, counted_as: int
) -> None:
    until_ms = connection.mute(throttle_ms, quota)
    record.until_ms = max(record.until_ms, until_ms)
    if record.usage_counters is not None:
        record.usage_counters.throttled(counted_as, until_ms - connection.now_ms)
