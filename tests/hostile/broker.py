"""Stand-ins for three brokers, in a process of their own that can hold ten thousand connections.

    python -m tests.hostile.broker FIRST_PORT

Node 0 answers everything, a fetch with `FETCHED` bytes; node 1 is deaf: it accepts and reads nothing; node 2
answers each connection's first request with one byte less than is missing, and closes: its first connection
is told nothing, its second the first byte, and so on.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.hostile.files import raise_descriptor_limit
from tests.kafka.settings import HOST
from tests.wire.frames import head_of, padded, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import FetchResponse, HeartbeatResponse, MetadataResponse, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.protocol.values import Message

FETCHED: Final = 1_000_000
SOUND, DEAF, CUTTING = NODES = (0, 1, 2)


def answer(first_port: int, frame: bytes) -> bytes:
    """What a sound broker says to a request."""
    head = head_of(frame)
    broker = MetadataResponse.MetadataResponseBroker
    answers: dict[int, Message] = {
        ApiKey.METADATA: MetadataResponse(
            brokers=[broker(node_id=node, host=HOST, port=first_port + node) for node in NODES]
        ),
        ApiKey.PRODUCE: ProduceResponse(),
        ApiKey.FETCH: FetchResponse(),
        ApiKey.HEARTBEAT: HeartbeatResponse(),
    }
    said = response(answers[head.api_key], head.version, head.correlation_id)
    return padded(said, FETCHED) if head.api_key == ApiKey.FETCH else said


class Sound(asyncio.Protocol):
    """Answers; reads no more while its answers are not taken."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._to = answer
        self._received = bytearray()
        self._paused = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._answer()

    def pause_writing(self) -> None:
        self._paused = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.transport.resume_reading()
        self._answer()

    def _answer(self) -> None:
        received = self._received
        while not self._paused and len(received) >= 4:
            (length,) = struct.unpack_from(">i", received)
            if len(received) < 4 + length:
                break
            frame = bytes(received[: 4 + length])
            del received[: 4 + length]
            self.say(self._to(frame))

    def say(self, frame: bytes) -> None:
        self.transport.write(frame)


class Deaf(asyncio.Protocol):
    """Reads nothing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


class Cutting(Sound):
    """Says less than it should."""

    _bytes_said = itertools.count()

    def say(self, frame: bytes) -> None:
        self.transport.write(frame[: next(self._bytes_said)])
        self.transport.close()


async def serve(first_port: int) -> None:
    """Be all three brokers, for ever."""
    loop = asyncio.get_running_loop()
    sound = partial(answer, first_port)
    kinds = {SOUND: lambda: Sound(sound), DEAF: Deaf, CUTTING: lambda: Cutting(sound)}
    for node in reversed(NODES):  # the first one last: who can reach it can reach all
        await loop.create_server(kinds[node], HOST, first_port + node, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    raise_descriptor_limit()
    asyncio.run(serve(int(sys.argv[1])))
