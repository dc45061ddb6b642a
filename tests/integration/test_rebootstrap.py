"""Java's client and KIP-1102: one reason why a drain tells no client to bootstrap again.

The error REBOOTSTRAP_REQUIRED of a Metadata response makes the client close its connections to all brokers,
also those with requests in flight. A drain answers these requests. The client here neither retries nor is
idempotent, so that the test sees the closed connection; `test_rebootstrap_delivery.py` has clients with their
default retries.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from tests.clients.model import ClientError
from tests.java.records import Exchange, JavaRecords
from tests.wire.frames import head_of, response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import ApiVersionsResponse, MetadataResponse, ProduceResponse

if TYPE_CHECKING:
    from weir.protocol.values import Message

pytestmark = [pytest.mark.broker]

VERSION = "4.2.0"
TOPIC = "t"
SERVED = {ApiKey.PRODUCE: (3, 9), ApiKey.METADATA: (12, 13), ApiKey.API_VERSIONS: (0, 4)}
CONFIG = {
    "enable.idempotence": "false",
    "retries": "0",
    "max.in.flight.requests.per.connection": "1",  # so that it asks the other broker for metadata
    "metadata.max.age.ms": "200",
    "request.timeout.ms": "20000",
    "delivery.timeout.ms": "30000",
}


class StubBrokers:
    """Brokers 1 (the leader) and 2. They answer a produce request after the next Metadata request, which the
    client sends to the broker without a request in flight.
    """

    def __init__(self, *, rebootstrap: bool) -> None:
        """With `rebootstrap`, Metadata responses have the error while a produce request is in flight."""
        self._rebootstrap = rebootstrap
        self._listening = [socket.create_server(("127.0.0.1", 0)) for _node_id in (1, 2)]
        self.ports = [listening.getsockname()[1] for listening in self._listening]
        self.in_flight = threading.Event()
        self.told = threading.Event()
        """Set once a Metadata request was answered while a produce request was in flight."""
        self.outcomes: list[str] = []
        """Of each produce request: if the client still waited for its response."""
        for listening in self._listening:
            threading.Thread(target=self._serve, args=(listening,), daemon=True).start()

    def close(self) -> None:
        """Accept no more clients."""
        for listening in self._listening:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                sock, _address = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(sock,), daemon=True).start()

    def _converse(self, sock: socket.socket) -> None:
        with sock, sock.makefile("rb") as file:
            while head := file.read(4):
                frame = head + file.read(struct.unpack(">i", head)[0])
                self._answer(sock, frame)

    def _answer(self, sock: socket.socket, frame: bytes) -> None:
        head = head_of(frame)
        if head.api_key == ApiKey.PRODUCE:
            self.in_flight.set()
            assert self.told.wait(15)
            sock.settimeout(1.0)  # a client that closes the connection does so at once
            try:
                self.outcomes.append("closed" if sock.recv(1) == b"" else "sent more")
            except TimeoutError:
                self.outcomes.append("waited")
            sock.settimeout(None)
        message = self._message(head.api_key)
        try:
            sock.sendall(response(message, head.version, head.correlation_id))
        except OSError:
            return
        if head.api_key == ApiKey.METADATA and self.in_flight.is_set():
            self.told.set()

    def _message(self, api_key: int) -> Message:
        if api_key == ApiKey.API_VERSIONS:
            version = ApiVersionsResponse.ApiVersion
            return ApiVersionsResponse(
                api_keys=[
                    version(api_key=key, min_version=first, max_version=last)
                    for key, (first, last) in SERVED.items()
                ]
            )
        if api_key == ApiKey.PRODUCE:
            return produced()
        if self._rebootstrap and self.in_flight.is_set() and not self.told.is_set():
            return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return metadata(self.ports)


def metadata(ports: list[int]) -> MetadataResponse:
    """The brokers, and one topic of one partition."""
    broker = MetadataResponse.MetadataResponseBroker
    topic = MetadataResponse.MetadataResponseTopic
    partition = MetadataResponse.MetadataResponsePartition
    return MetadataResponse(
        brokers=[broker(node_id=n, host="127.0.0.1", port=port) for n, port in enumerate(ports, 1)],
        controller_id=1,
        cluster_id="c",
        topics=[
            topic(
                name=TOPIC,
                partitions=[
                    partition(
                        partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], leader_epoch=0
                    )
                ],
            )
        ],
    )


def produced() -> ProduceResponse:
    """The record is stored."""
    topic = ProduceResponse.TopicProduceResponse
    partition = ProduceResponse.PartitionProduceResponse
    return ProduceResponse(
        responses=[topic(name=TOPIC, partition_responses=[partition(index=0, base_offset=0)])]
    )


@pytest.mark.parametrize(("rebootstrap", "outcome"), [(False, "waited"), (True, "closed")])
def test_a_java_client_told_to_bootstrap_again_drops_its_requests_in_flight(
    rebootstrap: bool, outcome: str
) -> None:
    brokers = StubBrokers(rebootstrap=rebootstrap)
    try:
        with pytest.raises(
            ClientError
        ) as raised:  # without the error, at its consumer: the stub has no Fetch
            JavaRecords(VERSION, f"127.0.0.1:{brokers.ports[0]}").run(Exchange(TOPIC, [b"x"], CONFIG))
        assert brokers.outcomes[:1] == [outcome], str(raised.value)[-1500:]
        assert ("NetworkException" in str(raised.value)) == rebootstrap, str(raised.value)[-1500:]
    finally:
        brokers.close()
