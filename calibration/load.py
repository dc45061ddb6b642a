"""One request, again and again on one connection, until the broker says that it is too much.

Some are under way at a time, so that the broker never waits for us: what finds it idle is dearer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from calibration.frames import length_of
from protocol.errors import ProtocolError
from protocol.framing import LENGTH_BYTES
from proxy.control.cluster.connection import RESPONSE_BYTES_MAX
from quotas.calibration import Reading

if TYPE_CHECKING:
    from calibration.cases import Case

DEPTH_MAX: Final = 32
DEPTH_BYTES: Final = 32_000
"""Of smaller requests at most so many bytes are under access: what lies in a broker's receive buffer must leave
room for a whole segment, which on loopback has 64 kB, or TCP waits for a timer.
"""
REQUESTS_MAX: Final = 200_000
SERVED_S: Final = 0.0001
"""In about this time a broker serves a small request: so many more are under way as the way is longer."""
_RECEIVE_BYTES: Final = 256 * 1024


class LoadResult(NamedTuple):
    """A reading, and what it was made with."""

    reading: Reading
    request_bytes: int
    """The value of the length field."""
    response_bytes: float
    """The same of responses, on average: without the last one, which a throttle may have emptied."""
    began_s: float
    """When the first response came, on Trio's clock."""


class NeverThrottledError(Exception):
    """The time in which a reading must be done is over."""


def depth(frame: bytes, round_trip_s: float) -> int:
    """How many requests are under way at a time."""
    wanted = min(2 + math.ceil(round_trip_s / SERVED_S), DEPTH_MAX)
    return max(min(wanted, DEPTH_BYTES // len(frame)), 1)


class Frames:
    """Cuts what a stream brings into frames."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._received = bytearray()

    async def next(self) -> bytes:
        """Raises BrokenResourceError at the end, ProtocolError for a length that no broker sends."""
        received = self._received
        while len(received) < LENGTH_BYTES or len(received) < length_of(received):
            more = await self._stream.receive_some(_RECEIVE_BYTES)
            if not more:
                raise trio.BrokenResourceError("the broker closed the connection")
            received += more
            if len(received) >= LENGTH_BYTES and not 0 < length_of(received) <= RESPONSE_BYTES_MAX:
                raise ProtocolError("its answer is none of Kafka's")
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
    """Send it until a response has a throttle time, or this is `enough`.

    Raises NeverThrottledError when neither has come within `at_most_s`, TooSlowError for a response that does
    not come, BrokenResourceError, ProtocolError.
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
    raise NeverThrottledError(f"{count} requests were not throttled")
