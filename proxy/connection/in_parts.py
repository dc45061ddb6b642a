"""Responses that are forwarded in parts: their elements are counted and changed while they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.proxy.connection.reporting import mute
from weir.proxy.connection.response_in_progress import PASSING
from weir.proxy.connection.state import OPEN
from weir.proxy.connection.usage_counters import OLD_READ, TOPIC
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.plan import ByteCounter


def process_part(connection: Connection, data: bytearray, start: int, stop: int) -> int:
    """Count and change the next bytes of a response's body, `data[start:stop]`, as many elements as the
    turn allows. Return the position behind the bytes that may be forwarded; if that is before `stop`, the
    turn is over. Raises ProtocolError if the response is malformed.
    """
    response, clock = connection.response, connection.clock
    byte_counter, rewriter = response.byte_counter, response.rewriter
    elements_max = clock.elements_left()  # before the counter feeds: both visit the same elements
    counted_to = ready_to = stop
    if byte_counter is not None:
        counted_to = ready_to = byte_counter.feed(data, start + response.counted_bytes, stop)
    if rewriter is not None:
        ready_to = rewriter.feed(data, start, counted_to, elements_max)
        clock.scanned += elements_max - rewriter.elements_left
    response.counted_bytes = counted_to - ready_to
    if ready_to < stop:
        end_turn(connection)
    return ready_to


def end_parts(connection: Connection) -> None:
    """End a response whose last part was processed."""
    if connection.response.byte_counter is not None:
        _end_measuring(connection, connection.response.byte_counter)


def passable_bytes(connection: Connection) -> int:
    """Return the number of bytes that come next and that nobody needs to see: the rest of a response that
    is being forwarded, or its next records, unless it is counted by topic.
    """
    response, rest_bytes = connection.response, connection.broker_end.rest_bytes
    if response.state == PASSING:
        return rest_bytes
    if response.byte_counter is not None or response.rewriter is None:
        return 0
    return min(response.rewriter.skippable_bytes, rest_bytes)


def passed(connection: Connection, count: int, now_ms: int) -> None:
    """Note that the next `count` bytes have been forwarded unseen; at most `passable_bytes`."""
    connection.now_ms = now_ms
    connection.broker_end.rest_bytes -= count
    if connection.response.rewriter is not None:
        connection.response.rewriter.skip(count)
    if not connection.broker_end.rest_bytes:
        connection.response.end()
        if connection.state != OPEN or connection.in_flight:
            connection.answered()


def end_turn(connection: Connection) -> None:
    """Leave the other bytes that have arrived for the next turn of the reactor."""
    connection.end_turn(connection.broker_end)


def measure(
    connection: Connection, byte_counter: ByteCounter, data: bytearray, body: int, end: int, complete: bool
) -> int:
    """Count the bytes of the current response: all of them now if the response is complete and the turn
    has time for its elements, else each part when it arrives, or in later turns. Return the time (ms)
    until which the throttle lasts, 0 for none.
    """
    counted_bytes = byte_counter.feed(data, body, end) - body if complete else 0
    if complete and counted_bytes == end - body:
        return _charge_measured(connection, byte_counter)
    connection.response.byte_counter, connection.response.counted_bytes = byte_counter, counted_bytes
    usage = connection.client.usage
    if usage is not None:
        usage.measured(under_way=True)
    return 0


def _charge_measured(connection: Connection, byte_counter: ByteCounter) -> int:
    """Charge the counted bytes; return the time (ms) until which the throttle lasts, 0 for none."""
    throttle_ms = byte_counter.charge(connection.now_ms)
    until_ms = 0
    if throttle_ms > 0:
        quota = byte_counter.quota
        until_ms = mute(
            connection, quota, throttle_ms, OLD_READ if quota is QuotaKey.OLD_READ_BYTE_RATE else TOPIC
        )
    if connection.client.usage is not None:
        connection.client.usage.measured(under_way=False)
    return until_ms


def _end_measuring(connection: Connection, byte_counter: ByteCounter) -> None:
    """Charge the counted bytes of a response that was forwarded in parts and has ended.

    The head of the response was forwarded before the charge, so it cannot tell the throttle time of a
    topic rate. The response to the next fetch of the topic tells it.
    """
    connection.response.byte_counter = None
    byte_counter.charge(connection.now_ms, told=False)
    if connection.client.usage is not None:
        connection.client.usage.measured(under_way=False)
