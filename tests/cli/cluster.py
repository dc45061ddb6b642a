"""Brokers that know each other and answer produce requests, in threads of the test's process."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.kafka.settings import HOST
from tests.wire.frames import head_of, request, response
from weir.protocol.api import ApiKey
from weir.protocol.messages import MetadataResponse, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.protocol.values import Message

VERSION: Final = 7
"""Of produce requests."""
WAIT_S: Final = 20


@contextmanager
def cluster(brokers: int, *, away: int | None = None) -> Iterator[list[int]]:
    """The ports of the brokers, which have the node ids from 0 on. The broker `away` cannot be reached."""
    listeners = [socket.create_server((HOST, 0)) for _ in range(brokers)]
    ports = [int(each.getsockname()[1]) for each in listeners]
    broker = MetadataResponse.MetadataResponseBroker
    nodes = [broker(node_id=node, host=HOST, port=port) for node, port in enumerate(ports)]
    answers: dict[int, Message] = {
        ApiKey.METADATA: MetadataResponse(brokers=nodes),
        ApiKey.PRODUCE: ProduceResponse(),
    }
    if away is not None:
        listeners.pop(away).close()
    for listener in listeners:
        threading.Thread(target=_accept, args=(listener, answers), daemon=True).start()
    try:
        yield ports
    finally:
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def _accept(listener: socket.socket, answers: dict[int, Message]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, answers), daemon=True).start()


def _serve(connection: socket.socket, answers: dict[int, Message]) -> None:
    with connection:
        while length := connection.recv(4, socket.MSG_WAITALL):
            frame = length + connection.recv(int.from_bytes(length), socket.MSG_WAITALL)
            head = head_of(frame)
            if head.api_key not in answers:
                return
            connection.sendall(response(answers[head.api_key], head.version, head.correlation_id))


def produced(size: int, client_id: str) -> bytes:
    """A produce request of about this size."""
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

    def close(self) -> None:
        self._sock.close()
