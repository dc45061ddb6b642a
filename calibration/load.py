"""Repeat one request on one connection until the broker throttles the client.

Several requests are in flight at a time, so that the broker is never idle: a request at an idle broker takes
more time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from weir.calibration.frames import length_of
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import LENGTH_BYTES
from weir.proxy.control.cluster.connection import RESPONSE_BYTES_MAX
from weir.quotas.costs.calibration import CostReading

if TYPE_CHECKING:
    from weir.calibration.cases import CalibrationCase

DEPTH_MAX: Final = 32
DEPTH_BYTES: Final = 32_000
"""Maximum number of bytes of requests in flight. The broker's receive buffer must have room for one more TCP
segment, which has 64 kB on loopback; otherwise TCP waits for a timer.
"""
REQUESTS_MAX: Final = 200_000
SERVED_S: Final = 0.0001
"""Approximate time (s) in which a broker serves a small request. `depth` divides the round trip by this time
to find the number of requests that keep the broker busy.
"""
_RECEIVE_BYTES: Final = 256 * 1024


class LoadResult(NamedTuple):
    """Result of sending one request repeatedly: the count and times of the responses, and the sizes of the
    frames.
    """

    reading: CostReading
    request_bytes: int
    """Size (bytes) of the request, as in its length field."""
    response_bytes: float
    """Mean size (bytes) of the responses, as in their length fields, without the last response: the response
    to a throttled fetch has no records.
    """
    began_s: float
    """Time (s, Trio's clock) at which the first response arrived."""


class NeverThrottledError(Exception):
    """Raised if the broker throttled none of the requests within the time limit or the maximum number of
    requests.
    """


def depth(frame: bytes, round_trip_s: float) -> int:
    """Return the number of requests to keep in flight so that the broker is never idle: at least 1, at most
    `DEPTH_MAX`, and at most `DEPTH_BYTES` of frames.
    """
    wanted = min(2 + math.ceil(round_trip_s / SERVED_S), DEPTH_MAX)
    return max(min(wanted, DEPTH_BYTES // len(frame)), 1)


class Frames:
    """Splits the bytes of a stream into frames."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def next(self) -> bytes:
        """Wait for the next frame; return it with its length field. Raises trio.BrokenResourceError at the
        end of the stream, ProtocolError if the length field has an impossible value.
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
    case: CalibrationCase,
    client_id: str,
    *,
    under_way: int,
    timeout_s: float,
    at_most_s: float,
    enough: int | None = None,
) -> LoadResult:
    """Send the request of `case` repeatedly until a response has a throttle time or, if `enough` is given,
    until this number of responses has arrived.

    At most `under_way` requests are in flight; only one if the case has pauses between requests. Raises
    NeverThrottledError after `at_most_s` or `REQUESTS_MAX` requests without a throttle time,
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
            reading = CostReading(count, throttle_ms, now_s - began_s)
            return LoadResult(reading, len(frame) - LENGTH_BYTES, average, began_s)
        if now_s - began_s > at_most_s:
            break
        if case.pause_s:
            await trio.sleep(case.pause_s)
        if count + under_way <= count_max:
            await stream.send_all(frame)
    raise NeverThrottledError(f"the broker throttled none of {count} requests")
