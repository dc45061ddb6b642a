"""Mutations at a broker, one after another, and its quota for them."""

from __future__ import annotations

import time
from typing import Final

from tests.mutations.requests import Answer, Create, Mutation, Topic
from tests.raw import Address, ask
from tests.wire.connection import Connection
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)

TIMEOUT_S: Final = 60.0
_QUOTAS_VERSION: Final = 1
_METADATA_VERSION: Final = 4
KEY: Final = "controller_mutation_rate"


def perform(connection: Connection, mutation: Mutation) -> Answer:
    """Send a request, and wait for the answer. Raises OSError, EOFError, ProtocolError."""
    return mutation.answer(connection.exchange(mutation.frame(connection.client_id)))


def ask_once(address: Address, client_id: str, mutation: Mutation) -> Answer:
    """One request on a connection of its own, so that no earlier throttle time holds it up."""
    with Connection(address, client_id) as connection:
        return perform(connection, mutation)


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
