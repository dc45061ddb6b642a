"""Java's client and KIP-1102: one reason why a drain tells no client to bootstrap again.

The error REBOOTSTRAP_REQUIRED of a Metadata response makes the client close its connections to all brokers,
also those with requests in flight. A drain answers these requests. The client here neither retries nor is
idempotent, so that the test sees the closed connection; `test_rebootstrap_delivery.py` has clients with their
default retries.
"""

from __future__ import annotations

import socket
import threading

import pytest

from tests.clients.model import ClientError
from tests.java.records import Exchange, JavaRecords
from tests.kfake.cluster import Cluster
from tests.kfake.threads import Brokers
from tests.wire.frames import head_of, response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import MetadataResponse, ProduceResponse
from weir.protocol.versions import VersionRange

pytestmark = [pytest.mark.broker]

VERSION = "4.4.0"
TOPIC = "t"
SERVED: dict[int, VersionRange] = {
    ApiKey.PRODUCE: VersionRange(3, 9),
    ApiKey.METADATA: VersionRange(12, 13),
    ApiKey.API_VERSIONS: VersionRange(0, 4),
}
CONFIG = {
    "enable.idempotence": "false",
    "retries": "0",
    "max.in.flight.requests.per.connection": "1",  # so that it asks the other broker for metadata
    "metadata.max.age.ms": "200",
    "request.timeout.ms": "20000",
    "delivery.timeout.ms": "30000",
}


class RebootstrapBrokers(Brokers):
    """Brokers 1 (the leader) and 2. They answer a produce request after the next Metadata request, which the
    client sends to the broker without a request in flight.
    """

    def __init__(self, *, rebootstrap: bool) -> None:
        """With `rebootstrap`, Metadata responses have the error while a produce request is in flight."""
        cluster = Cluster(spoken=SERVED, handlers={ApiKey.PRODUCE: produced()})
        super().__init__(cluster, (1, 2))
        cluster.add(TOPIC)
        self._rebootstrap = rebootstrap
        self._in_flight, self._told = threading.Event(), threading.Event()
        self.outcomes: list[str] = []
        """Of each produce request: if the client still waited for its response."""

    def answer(self, connection: socket.socket, frame: bytes, node_id: int) -> None:
        head = head_of(frame)
        if head.api_key == ApiKey.PRODUCE:
            self._in_flight.set()
            assert self._told.wait(15)
            connection.settimeout(1.0)  # a client that closes the connection does so at once
            try:
                self.outcomes.append("closed" if connection.recv(1) == b"" else "sent more")
            except TimeoutError:
                self.outcomes.append("waited")
            connection.settimeout(None)
        is_metadata = head.api_key == ApiKey.METADATA
        if is_metadata and self._rebootstrap and self._in_flight.is_set() and not self._told.is_set():
            told = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            connection.sendall(response(told, head.version, head.correlation_id))
        else:
            super().answer(connection, frame, node_id)
        if is_metadata and self._in_flight.is_set():
            self._told.set()


def produced() -> ProduceResponse:
    topic = ProduceResponse.TopicProduceResponse
    partition = ProduceResponse.PartitionProduceResponse
    return ProduceResponse(
        responses=[topic(name=TOPIC, partition_responses=[partition(index=0, base_offset=0)])]
    )


@pytest.mark.parametrize(("rebootstrap", "outcome"), [(False, "waited"), (True, "closed")])
def test_a_java_client_told_to_bootstrap_again_drops_its_requests_in_flight(
    rebootstrap: bool, outcome: str
) -> None:
    with RebootstrapBrokers(rebootstrap=rebootstrap) as brokers:
        with pytest.raises(
            ClientError
        ) as raised:  # without the error, at its consumer: the stub has no Fetch
            JavaRecords(VERSION, brokers.address).run(Exchange(TOPIC, [b"x"], CONFIG))
        assert brokers.outcomes[:1] == [outcome], str(raised.value)[-1500:]
        assert ("NetworkException" in str(raised.value)) == rebootstrap, str(raised.value)[-1500:]
