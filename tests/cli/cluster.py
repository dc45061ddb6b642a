"""Brokers that know each other and answer produce requests, in threads of the test's process."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.kafka.settings import HOST
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.wire.frames import request
from weir.protocol.messages import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION: Final = 7
"""Of produce requests."""
WAIT_S: Final = 20


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


def _ended() -> bytes:
    raise ConnectionError("Weir has closed the connection")


class Producer:
    """A client of one broker, at Weir's port for it."""

    def __init__(
        self, port: int, client_id: str, tls: Callable[[socket.socket], socket.socket] | None = None
    ) -> None:
        """Connect; `tls` makes the secured socket from the plain one."""
        plain = socket.create_connection((HOST, port), WAIT_S)
        self._sock = plain if tls is None else tls(plain)
        self._client_id = client_id

    def produce(self, size: int) -> int:
        """The throttle time (ms) that a produce request of this size is told."""
        return self.send(produced(size, self._client_id))

    def send(self, frame: bytes) -> int:
        """The throttle time (ms) that this produce request is told."""
        self._sock.sendall(frame)
        answer = b""
        while len(answer) < 4 + 4 + 8:
            answer += self._sock.recv(4 + 4 + 8 - len(answer)) or _ended()
        return int.from_bytes(answer[-4:])

    def begin(self, size: int) -> None:
        """Send a produce request of this size."""
        self._sock.sendall(produced(size, self._client_id))

    def wait_closed(self) -> None:
        """Wait until Weir closes the connection."""
        assert self._sock.recv(1) == b""

    def close(self) -> None:
        self._sock.close()
