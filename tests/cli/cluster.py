"""Brokers that know each other and answer produce requests, in threads of the test's process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.kafka.settings import HOST
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.wire.connection import Connection
from tests.wire.frames import request
from weir.protocol.messages import ProduceRequest

VERSION: Final = 7
"""Of produce requests."""
WAIT_S: Final = 60


@contextmanager
def cluster(brokers: int, *, away: int | None = None) -> Iterator[list[int]]:
    """The ports of the brokers, which have the node ids from 0 on. The broker `away` cannot be reached."""
    with Brokers(Cluster(), range(brokers)) as served:
        if away is not None:
            served.stop(away)
        yield served.ports


def produced(size: int, client_id: str) -> bytes:
    message = ProduceRequest(acks=1, transactional_id="t" * size)
    return request(message, VERSION, client_id=client_id.encode())


class Producer(Connection):
    def __init__(
        self, port: int, client_id: str, tls: Callable[[socket.socket], socket.socket] | None = None
    ) -> None:
        """Connect; `tls` makes the secured socket from the plain one."""
        super().__init__((HOST, port), client_id, WAIT_S)
        if tls is not None:
            self._socket = tls(self._socket)

    def produce(self, size: int) -> int:
        """The throttle time (ms) that a produce request of this size is told."""
        return self.throttle_ms(produced(size, self.client_id))

    def throttle_ms(self, frame: bytes) -> int:
        return int.from_bytes(self.exchange(frame)[-4:])

    def begin(self, size: int) -> None:
        self.send(produced(size, self.client_id))

    def wait_closed(self) -> None:
        assert self._socket.recv(1) == b""
