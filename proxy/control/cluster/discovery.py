"""Weir's own questions to the cluster: its brokers (Metadata), and a broker's API versions. Each question has
a connection of its own.

Weir also learns brokers from the responses that it forwards. By asking, it opens their listeners before the
first client needs one, and notices brokers that appear or move while no client is connected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import structlog

from protocol.error_codes import ErrorCode
from protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from protocol.versions import VersionRange
from proxy.addresses import Address, AddressBook
from proxy.config.settings import ConfigError
from proxy.control.cluster.access import DIRECT, Access
from proxy.control.cluster.connection import LoginError, QuestionError, TlsError
from proxy.handlers.api_versions.api_versions import ranges

if TYPE_CHECKING:
    from proxy.config.config import Config

log = structlog.get_logger("weir")

METADATA_VERSION: Final = 1
"""Version of Metadata that every broker from 0.10 on has, and in which an empty list asks for no topics."""
API_VERSIONS_VERSION: Final = 0
"""Version of ApiVersions that every broker from 0.10 on has; it lists the same ranges as later versions."""


class DiscoveryError(Exception):
    """No broker has listed the cluster's brokers."""

    def __init__(self, failures: list[QuestionError]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.first = str(failures[0]) if failures else ""
        """Error text of the first broker asked; empty if no broker was asked."""
        reachable = [failure for failure in failures if failure.reachable]
        self.reachable = bool(reachable)
        """True if at least one broker accepted a connection, and TLS (or its absence) fits its port."""
        self.tls = next((str(failure) for failure in failures if isinstance(failure, TlsError)), "")
        """Error text of the first broker that could not be reached because of the TLS settings; empty if no
        broker failed so.
        """
        self.foreign = bool(reachable) and all(failure.foreign for failure in reachable)
        """True if every peer that accepted a connection sent bytes that are no Kafka response. False if one
        of them closed the connection: a broker that requires SASL does that too.
        """
        self.refused = bool(reachable) and all(isinstance(failure, LoginError) for failure in reachable)
        """True if every broker that accepted a connection rejected Weir's own credentials."""


async def discover(
    bootstrap: Iterable[Address], timeout_s: float, access: Access = DIRECT
) -> dict[int, Address]:
    """Return the addresses of the cluster's brokers by node id, from the Metadata response of the first
    address in `bootstrap` that answers.

    Raises DiscoveryError if no address answers.
    """
    failures: list[QuestionError] = []
    question = MetadataRequest(topics=[])
    for address in bootstrap:
        try:
            answer = await access.ask(address, question, MetadataResponse, METADATA_VERSION, timeout_s)
        except QuestionError as error:
            failures.append(error)
        else:
            return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
    raise DiscoveryError(failures)


async def first_brokers(config: Config, address_book: AddressBook) -> tuple[dict[int, Address], str]:
    """Ask the configured addresses for the cluster's brokers, before Weir serves clients. Return the brokers
    and an empty text; or no brokers and the reason, if a broker was reached but did not list them.

    Raises ConfigError if no address can be reached or be a Kafka broker, if TLS fails, if Weir's credentials
    are refused, or if there are too few ports for the brokers.
    """
    try:
        nodes = await discover(config.upstream, config.settings.connect_timeout_s, Access.of(config))
    except DiscoveryError as error:
        if not error.reachable and error.tls:
            raise ConfigError(f"cannot connect to the brokers: {error.tls}") from None
        if not error.reachable:
            raise ConfigError(f"no upstream broker can be reached: {error}: check --upstream") from None
        if error.foreign:
            raise ConfigError(f"upstream is no Kafka broker: {error}: check --upstream") from None
        if error.refused:
            raise ConfigError(f"cannot log in to the brokers: {error.first}") from None
        return {}, str(error)
    unmapped = address_book.unmapped(list(nodes))
    if unmapped is not None:
        raise ConfigError(unmapped)
    return nodes, ""


async def refresh(config: Config, address_book: AddressBook) -> None:
    """Ask the cluster for its brokers; record new brokers and changed addresses in the address book. Log a
    warning if no broker answers.
    """
    try:
        known = [*address_book.nodes.values(), *config.upstream]
        nodes = await discover(known, config.settings.connect_timeout_s, Access.of(config))
    except DiscoveryError as error:
        log.warning("no broker answers", reason=str(error))
        return
    for node_id, address in nodes.items():
        address_book.observe(node_id, address)


async def ask_versions(
    address: Address, timeout_s: float, access: Access = DIRECT
) -> dict[int, VersionRange]:
    """Ask a broker for the API versions that it supports; return the version ranges by API key. Raises
    QuestionError.
    """
    question = ApiVersionsRequest()
    answer = await access.ask(address, question, ApiVersionsResponse, API_VERSIONS_VERSION, timeout_s)
    if answer.error_code != ErrorCode.NONE:
        text = f"{address}: it answers ApiVersions with error {answer.error_code}"
        raise QuestionError(text, reachable=True, foreign=False)
    return ranges(answer)
