"""Brokers in a process of their own, which can hold ten thousand connections.

    python -m tests.kfake.process KIND PORT NODES NODE...

They say that broker n of the NODES brokers is at PORT + n, and serve as the brokers NODE.... Kinds:

- `sound` answers every API;
- `accepting` and `refusing` ask for a login, and accept all passwords or none;
- `hostile` answers a fetch with `FETCHED_BYTES`. Its broker 1 is deaf: it accepts and reads nothing. Its
  broker 2 cuts: it answers each connection's first request with one byte less than is missing, and closes.
  Its first connection receives nothing, its second the first byte, and so on.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
from typing import Final

from tests.hostile.files import raise_descriptor_limit
from tests.kfake.cluster import HOST, Cluster
from tests.wire.smallest import minimal
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from weir.proxy.addresses import Address

FETCHED_BYTES: Final = 1_000_000
SOUND, DEAF, CUTTING = (0, 1, 2)
"""Node ids of the kind `hostile`."""
REFUSED: Final = SaslAuthenticateResponse(
    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
    error_message="Authentication failed: Invalid username or password",
)


def new_cluster(kind: str, port: int, nodes: int) -> Cluster:
    """A cluster that keeps neither requests nor topics, so that it does not grow."""
    cluster = Cluster(nodes={node: Address(HOST, port + node) for node in range(nodes)}, keeps=False)
    cluster.handlers |= {ApiKey.CREATE_TOPICS: _created, ApiKey.DELETE_TOPICS: _deleted}
    if kind == "hostile":
        cluster.handlers[ApiKey.FETCH] = _fetched
    elif kind != "sound":
        cluster.handlers[ApiKey.SASL_HANDSHAKE] = SaslHandshakeResponse(mechanisms=["PLAIN"])
        accepted = SaslAuthenticateResponse()
        cluster.handlers[ApiKey.SASL_AUTHENTICATE] = accepted if kind == "accepting" else REFUSED
    return cluster


def _created(request: CreateTopicsRequest, *_: int) -> CreateTopicsResponse:
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[result(name=topic.name) for topic in request.topics])


def _deleted(request: DeleteTopicsRequest, version: int, _now_ms: int) -> DeleteTopicsResponse:
    names = [topic.name for topic in request.topics] if version >= 6 else request.topic_names
    result = DeleteTopicsResponse.DeletableTopicResult
    return DeleteTopicsResponse(responses=[result(name=name) for name in names])


def _fetched(_request: FetchRequest, version: int, _now_ms: int) -> bytes:
    return minimal(FetchResponse, version).ljust(FETCHED_BYTES, b"\0")


class Sound(asyncio.Protocol):
    """Answers; reads no more while its answers are not taken."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
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
            try:
                self.say(self._cluster.answer(frame))
            except ConnectionAbortedError:
                self.transport.close()
                return

    def say(self, frame: bytes) -> None:
        self.transport.write(frame)


class Deaf(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


class Cutting(Sound):
    """Says less than it should."""

    _bytes_said = itertools.count()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"weir", 14):  # Weir looks at an address by itself: no client's answer is cut
            self.transport.close()
        else:
            super().data_received(data)

    def say(self, frame: bytes) -> None:
        self.transport.write(frame[: next(self._bytes_said)])
        self.transport.close()


async def serve(kind: str, port: int, nodes: int, *served: int) -> None:
    loop = asyncio.get_running_loop()
    cluster = new_cluster(kind, port, nodes)
    faulty = {DEAF: Deaf, CUTTING: lambda: Cutting(cluster)} if kind == "hostile" else {}
    for node in reversed(served):  # the first one last: who can reach it can reach all
        await loop.create_server(faulty.get(node, lambda: Sound(cluster)), HOST, port + node, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    raise_descriptor_limit()
    asyncio.run(serve(sys.argv[1], *map(int, sys.argv[2:])))
