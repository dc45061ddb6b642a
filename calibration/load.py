"""Repeat one request on one connection until the broker throttles it.

Several requests are in flight at a time, so that the broker is never idle: an idle broker needs more time for
a request.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from calibration.frames import length_of
from protocol.errors import ProtocolError
from protocol.framing import LENGTH_BYTES
from proxy.control.cluster.connection import RESPONSE_BYTES_MAX
from quotas.costs.calibration import Reading

if TYPE_CHECKING:
    from calibration.cases import Case

DEPTH_MAX: Final = 32
DEPTH_BYTES: Final = 32_000
"""Number of bytes in flight, at most. The broker's receive buffer must have room for one more TCP segment,
which on loopback has 64 kB; otherwise TCP waits for a timer.
"""
REQUESTS_MAX: Final = 200_000
SERVED_S: Final = 0.0001
"""Time (s), roughly, in which a broker serves a small request: one more is in flight per this much round
trip.
"""
_RECEIVE_BYTES: Final = 256 * 1024


class LoadResult(NamedTuple):
    """The reading of one load, and its sizes."""

    reading: Reading
    request_bytes: int
    """Value of the request's length field."""
    response_bytes: float
    """Mean value of the responses' length fields, without the last response: a throttled fetch has no
    records.
    """
    began_s: float
    """Time (s, Trio's clock) of the first response."""


class NeverThrottledError(Exception):
    """The broker throttled none of the requests within the time limit."""


def depth(frame: bytes, round_trip_s: float) -> int:
    """Return the number of requests in flight at a time, at least 1."""
    wanted = min(2 + math.ceil(round_trip_s / SERVED_S), DEPTH_MAX)
    return max(min(wanted, DEPTH_BYTES // len(frame)), 1)


class Frames:
    """Cuts the bytes of a stream into frames."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def next(self) -> bytes:
        """Return the next frame, with its length field. Raises trio.BrokenResourceError at the end of the
        stream, ProtocolError for an impossible length.
        """
        received = self._received
        while len(received) < LENGTH_BYTES or len(received) < length_of(received):
            more = await self._stream.receive_some(_RECEIVE_BYTES)
            if not more:
                raise trio.BrokenResourceError("the broker closed the connection")
            received += more
            if len(received) >= LENGTH_BYTES and not 0 < length_of(received) <= RESPONSE_BYTES_MAX:
                raise ProtocolError("the response is not Kafka's")
        length = length_of(received)
        frame = bytes(received[:length])
        del received[:length]
        return frame


async def generate_load(
    stream: trio.abc.Stream,
    case: Case,
    client_id: str,
    *,
    under_way: int,
    timeout_s: float,
    at_most_s: float,
    enough: int | None = None,
) -> LoadResult:
    """Send the case's request until a response has a throttle time; with `enough`, at most this many times.

    `under_way` requests are in flight. Raises NeverThrottledError if this takes longer than `at_most_s`,
    trio.TooSlowError if a response takes longer than `timeout_s`, trio.BrokenResourceError, ProtocolError.
    """
    count_max = REQUESTS_MAX if enough is None else enough
    frame, frames = case.request.frame(client_id), Frames(stream)
    under_way = 1 if case.pause_s else min(under_way, count_max)
    await stream.send_all(frame * under_way)
    began_s, received_bytes = 0.0, 0
    for count in range(1, count_max + 1):
        with trio.fail_after(timeout_s):
            answer = await frames.next()
        now_s = trio.current_time()
        began_s = now_s if count == 1 else began_s
        received_bytes += len(answer) - LENGTH_BYTES
        throttle_ms = case.request.throttle_ms(answer)
        if throttle_ms > 0 or count == enough:
            before = received_bytes - (len(answer) - LENGTH_BYTES)
            average = before / (count - 1) if count > 1 else float(received_bytes)
            reading = Reading(count, throttle_ms, now_s - began_s)
            return LoadResult(reading, len(frame) - LENGTH_BYTES, average, began_s)
        if now_s - began_s > at_most_s:
            break
        if case.pause_s:
            await trio.sleep(case.pause_s)
        if count + under_way <= count_max:
            await stream.send_all(frame)
    raise NeverThrottledError(f"the broker throttled none of {count} requests")
