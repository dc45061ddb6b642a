"""A client over one plain connection: a request and its answer, with the time it took."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final, Self

from protocol.framing import LENGTH, LENGTH_BYTES
from protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.mutations.requests import Create, Topic
from tests.raw import ask

if TYPE_CHECKING:
    from types import TracebackType

    from tests.mutations.requests import Answer, Mutation
    from tests.raw import Address

TIMEOUT_S: Final = 60.0
_QUOTAS_VERSION: Final = 1
_METADATA_VERSION: Final = 4
KEY: Final = "controller_mutation_rate"


class Connection:
    """Sends one request after the other as `client_id`; a context manager."""

    def __init__(self, address: Address, client_id: str) -> None:
        self.client_id = client_id
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, mutation: Mutation) -> None:
        """Send a request without waiting for its answer. Raises OSError."""
        self._socket.sendall(mutation.frame(self.client_id))

    def receive(self, mutation: Mutation) -> Answer:
        """The answer to the oldest request that was sent. Raises OSError, EOFError, ProtocolError."""
        head = self._stream.read(LENGTH_BYTES)
        if len(head) < LENGTH_BYTES:
            raise EOFError(f"{self.client_id}: closed instead of answering {mutation}")
        return mutation.answer(head + self._stream.read(*LENGTH.unpack(head)))

    def ask(self, mutation: Mutation) -> Answer:
        """Send, and wait for the answer. Raises OSError, EOFError, ProtocolError."""
        self.send(mutation)
        return self.receive(mutation)


def ask_once(address: Address, client_id: str, mutation: Mutation) -> Answer:
    """One request on a connection of its own, so that no earlier throttle time holds it up."""
    with Connection(address, client_id) as connection:
        return connection.ask(mutation)


def timed(connection: Connection, mutation: Mutation) -> tuple[Answer, float]:
    """An answer, and the seconds until it was here."""
    began = time.monotonic()
    return connection.ask(mutation), time.monotonic() - began


def set_mutation_quota(address: Address, client_id: str | None, rate: float) -> None:
    """Give a client-id (None: the default) a quota of the broker's own; partitions/s. Raises ValueError."""
    quotas = AlterClientQuotasRequest
    entity = quotas.EntityData(entity_type="client-id", entity_name=client_id)
    entry = quotas.EntryData(entity=[entity], ops=[quotas.OpData(key=KEY, value=rate, remove=False)])
    request = quotas(entries=[entry], validate_only=False)
    for answered in ask(address, request, AlterClientQuotasResponse, _QUOTAS_VERSION).entries:
        if answered.error_code:
            raise ValueError(f"quota of {client_id}: {answered.error_code} {answered.error_message}")


def await_mutation_quota(
    address: Address, client_id: str = "quota-probe", topic: str = "quota-probe"
) -> None:
    """Return once a broker enforces the quota of a client-id, and with it those that were set before.

    Asks for more and more partitions, without creating any, until that has to wait.
    """
    deadline = time.monotonic() + TIMEOUT_S
    probe = Create((Topic(topic, 100),), version=5, validate_only=True)
    while not ask_once(address, client_id, probe).throttle_ms:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the quota of {client_id} does not count after {TIMEOUT_S:.0f} s")


def await_topic(address: Address, name: str) -> None:
    """Return once a broker's metadata have a topic: they follow the controller's, if slowly at times."""
    wanted = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not all(one.partitions for one in ask(address, wanted, MetadataResponse, _METADATA_VERSION).topics):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing is known of {name} after {TIMEOUT_S:.0f} s")
