"""Asking the cluster which brokers it has: one Metadata request, on a connection of its own.

Weir learns brokers from the responses that pass through as well; asking makes their listeners open before the
first client needs one, and follows brokers that come and move while no client asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocol.messages import MetadataRequest, MetadataResponse
from proxy.addresses import Address
from proxy.control.cluster.access import DIRECT, Access
from proxy.control.cluster.connection import LoginError, QuestionError, TlsError
from proxy.control.cluster.question import ask

METADATA_VERSION: Final = 1
"""Every broker from 0.10 to the newest has it, and in it an empty list of topics means none."""


class DiscoveryError(Exception):
    """No broker told its cluster."""

    def __init__(self, failures: list[QuestionError]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.first = str(failures[0]) if failures else ""
        """What the first one said."""
        reachable = [failure for failure in failures if failure.reachable]
        self.reachable = bool(reachable)
        """One of them accepted a connection, at least, and TLS is not what is wrong."""
        self.tls = next((str(failure) for failure in failures if isinstance(failure, TlsError)), "")
        """What is wrong with TLS, where the first one says that it is."""
        self.foreign = bool(reachable) and all(failure.foreign for failure in reachable)
        """Whoever accepted a connection answered as no Kafka broker does; one that closes it unasked may want
        SASL.
        """
        self.refused = bool(reachable) and all(isinstance(failure, LoginError) for failure in reachable)
        """Whoever accepted a connection did not accept Weir's own credentials."""


async def discover(
    bootstrap: Iterable[Address], timeout_s: float, access: Access = DIRECT
) -> dict[int, Address]:
    """Return the cluster's brokers by node id, from the first of the addresses that answers.

    Raises DiscoveryError.
    """
    failures: list[QuestionError] = []
    question = MetadataRequest(topics=[])
    for address in bootstrap:
        try:
            answer = await ask(address, question, MetadataResponse, METADATA_VERSION, timeout_s, access)
        except QuestionError as error:
            failures.append(error)
        else:
            return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
    raise DiscoveryError(failures)
