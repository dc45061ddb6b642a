"""A cluster's brokers at sockets of the loopback interface, in Trio; frames over a stream, for clients."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from tests.kfake.cluster import HOST, Cluster
from tests.wire.connection import FRAME_BYTES_MAX
from tests.wire.frames import head_of
from weir.protocol.api import ApiKey
from weir.proxy.addresses import Address


@asynccontextmanager
async def _closing(stream: trio.abc.Stream) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await trio.aclose_forcefully(stream)


class Connection:
    def __init__(self, stream: trio.abc.Stream) -> None:
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


async def serve(
    cluster: Cluster,
    node_id: int,
    *,
    known: bool = True,
    port: int = 0,
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:
    """Be a broker until cancelled; `known` puts it into the metadata; `port` 0 is any free port."""
    (listener,) = await trio.open_tcp_listeners(port, host=HOST)
    if known:
        cluster.nodes[node_id] = Address(HOST, listener.socket.getsockname()[1])
    with trio.CancelScope() as scope:
        task_status.started(scope)

        async def accepted(plain: trio.SocketStream) -> None:
            if cluster.tls is None:
                await converse(cluster, plain, node_id)
                return
            stream = trio.SSLStream(plain, cluster.tls, server_side=True, https_compatible=True)
            async with _closing(stream):
                with suppress(trio.BrokenResourceError):
                    await stream.do_handshake()
                    await converse(cluster, stream, node_id)

        await trio.serve_listeners(accepted, [listener])


async def converse(cluster: Cluster, stream: trio.abc.Stream, node_id: int = 0) -> None:
    connection = Connection(stream)
    async with _closing(stream):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ConnectionAbortedError):
            while (frame := await connection.frame()) is not None:
                answer = cluster.answer(frame, int(1000 * trio.current_time()), node_id)
                if cluster.may_answer is not None and head_of(frame).api_key == ApiKey.HEARTBEAT:
                    await cluster.may_answer.wait()
                await stream.send_all(answer)
