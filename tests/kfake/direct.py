"""A client's connection through Weir to a fake broker that answers at once."""

from __future__ import annotations

from tests.kfake.cluster import Cluster
from tests.proxy.wire import Wire
from tests.wire.frames import split
from weir.proxy.connection.connection import Connection


class Client:
    def __init__(self, connection: Connection, cluster: Cluster) -> None:
        self.connection = connection
        self.cluster = cluster
        self.wire = Wire(connection)

    def send(self, now_ms: int, *frames: bytes) -> list[bytes]:
        """Send requests; return the frames of the responses that come of them."""
        self.wire.feed(now_ms, client=b"".join(frames))
        self.answer(now_ms)
        assert self.connection.effects.close_reason is None, self.connection.effects.close_reason
        return self.take()

    def answer(self, now_ms: int) -> None:
        while self.wire.to_broker:
            asked = split(bytes(self.wire.to_broker))
            self.wire.to_broker.clear()
            for frame in asked:
                self.wire.feed(now_ms, broker=self.cluster.answer(frame, now_ms))

    def take(self) -> list[bytes]:
        """The frames that the client has received since the last call."""
        told = split(bytes(self.wire.to_client))
        self.wire.to_client.clear()
        return told
