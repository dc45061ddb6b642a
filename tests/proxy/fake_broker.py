"""A cluster of brokers that answer from scripted values, in Trio, on the loopback interface."""

from __future__ import annotations

import ssl
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from tests.wire.frames import head_of, request_body_of, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from weir.proxy.addresses import Address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weir.protocol.values import Message

HOST: Final = "127.0.0.1"
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: of more it closes the connection, as if TLS had been meant."""


@asynccontextmanager
async def _closing(stream: trio.abc.Stream) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await trio.aclose_forcefully(stream)


class Connection:
    """Frames over a stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        """Take over the stream."""
        self.stream = stream
        self._received = bytearray()

    async def frame(self) -> bytes | None:
        """The next frame; None at the end."""
        while len(self._received) < 4 or len(self._received) < self._length():
            try:
                more = await self.stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not more:
                return None
            self._received += more
            if len(self._received) >= 4 and self._length() > FRAME_BYTES_MAX:
                return None
        frame = bytes(self._received[: self._length()])
        del self._received[: len(frame)]
        return frame

    async def ask(self, frame: bytes) -> bytes | None:
        """Send a request and return its response; None if the connection ends before."""
        await self.stream.send_all(frame)
        return await self.frame()

    def _length(self) -> int:
        length: int = struct.unpack_from(">i", self._received)[0]
        return length + 4


@dataclass
class FakeCluster:
    """What all brokers say, and what they were asked."""

    nodes: dict[int, Address] = field(default_factory=dict)
    """What Metadata tells."""
    asked: list[tuple[int, bytes]] = field(default_factory=list)
    """(node id, request frame), without discovery's."""
    answers: dict[int, Message] = field(default_factory=dict)
    """Per API key; others have answers with defaults."""
    may_answer: trio.Event = field(default_factory=trio.Event)
    """While not set, heartbeats are not answered."""
    garbage: bytes = b""
    """Sent instead of any answer, if set."""
    tls: ssl.SSLContext | None = None
    """Of every broker's listener; None: they are plain."""
    shy: bool = False
    """Closes the connection instead of telling Weir its brokers, as one does that wants SASL first."""

    async def serve(
        self,
        node_id: int,
        *,
        known: bool = True,
        port: int = 0,
        task_status: trio.TaskStatus[trio.CancelScope],
    ) -> None:
        """Be a broker until cancelled; `known` puts it into the metadata; `port` 0 is any free port."""
        (listener,) = await trio.open_tcp_listeners(port, host=HOST)
        if known:
            self.nodes[node_id] = Address(HOST, listener.socket.getsockname()[1])
        with trio.CancelScope() as scope:
            task_status.started(scope)

            async def session(plain: trio.SocketStream) -> None:
                tls = self.tls
                if tls is None:
                    await self._session(node_id, plain)
                    return
                stream = trio.SSLStream(plain, tls, server_side=True, https_compatible=True)
                async with _closing(stream):
                    with suppress(trio.BrokenResourceError):
                        await stream.do_handshake()
                        await self._session(node_id, stream)

            await trio.serve_listeners(session, [listener])

    async def _session(self, node_id: int, stream: trio.abc.Stream) -> None:
        connection = Connection(stream)
        async with _closing(stream):
            while (frame := await connection.frame()) is not None:
                if not frame.startswith(b"weir", 14):
                    self.asked.append((node_id, frame))
                elif self.shy:
                    return
                answer = self.garbage or await self._answer(frame)
                try:
                    await stream.send_all(answer)
                except trio.BrokenResourceError:
                    return

    async def _answer(self, frame: bytes) -> bytes:
        head = head_of(frame)
        message = self.answers.get(head.api_key)
        if head.api_key == ApiKey.PRODUCE and not request_body_of(frame, ProduceRequest, head.version).acks:
            return b""
        if message is None:
            message = self._default(head.api_key)
        if head.api_key == ApiKey.HEARTBEAT:
            await self.may_answer.wait()
        return response(message, head.version, head.correlation_id)

    def _default(self, api_key: int) -> Message:
        if api_key == ApiKey.METADATA:
            broker = MetadataResponse.MetadataResponseBroker
            return MetadataResponse(
                brokers=[broker(node_id=n, host=a.host, port=a.port) for n, a in self.nodes.items()]
            )
        defaults: dict[int, Message] = {
            ApiKey.PRODUCE: ProduceResponse(),
            ApiKey.FETCH: FetchResponse(),
            ApiKey.HEARTBEAT: HeartbeatResponse(),
            ApiKey.API_VERSIONS: ApiVersionsResponse(),
        }
        return defaults[api_key]
