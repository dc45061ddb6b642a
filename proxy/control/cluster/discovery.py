"""Weir's own questions to the cluster: its brokers (Metadata), and a broker's API versions. Each question has
a connection of its own.

Weir also learns brokers from the responses that it forwards. Because Weir asks too, a broker's listener is
open before the first client needs it, and Weir notices brokers that appear or move while no client is
connected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from weir.protocol.versions import VersionRange
from weir.proxy.addresses import Address, AddressBook
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.cluster.access import DIRECT, Access
from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.control.cluster.connection import LoginError, QuestionError, TlsError
from weir.proxy.handlers.api_versions.api_versions import ranges
from weir.proxy.net.race import Race
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from weir.proxy.config.config import Config

log = structlog.get_logger("weir")

WAITING_S: Final = 1.0
"""Time (s) between two questions while no broker has been reached since the start."""
RIVAL_S: Final = 1.0
"""Time (s) after which the next broker is asked beside the one before."""
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
    """Return the addresses of the cluster's brokers by node id, from the first Metadata response. The
    addresses in `bootstrap` are asked in turn, the next one after `RIVAL_S` without an answer.

    Raises DiscoveryError if no address answers.
    """

    async def ask(address: Address) -> MetadataResponse:
        question = MetadataRequest(topics=[])
        return await access.ask(address, question, MetadataResponse, METADATA_VERSION, timeout_s)

    addresses = list(dict.fromkeys(bootstrap))
    race = Race(ask, QuestionError, RIVAL_S)
    won = await race.run(addresses)
    if won is None:
        raise DiscoveryError([race.failures[address] for address in addresses])
    return {broker.node_id: Address(broker.host, broker.port) for broker in won[1].brokers}


class FirstBrokers(NamedTuple):
    """The brokers that are known before Weir serves clients."""

    nodes: dict[int, Address]
    untold: str = ""
    """Reason why a broker that was reached did not list the brokers; empty if there is no such reason."""
    away: str = ""
    """Reason why no broker could be reached; empty if one was reached."""


async def first_brokers(config: Config, address_book: AddressBook) -> FirstBrokers:
    """Ask the configured addresses for the cluster's brokers, before Weir serves clients.

    Raises ConfigError if an address is no Kafka broker, if TLS fails, if Weir's credentials are refused, or
    if there are too few ports for the brokers.
    """
    try:
        nodes = await discover(config.upstream, config.connect_timeout_s, Access.of(config))
    except DiscoveryError as error:
        if not error.reachable and error.tls:
            raise ConfigError(f"cannot connect to the brokers: {error.tls}") from None
        if not error.reachable:
            return FirstBrokers({}, away=str(error))
        if error.foreign:
            raise ConfigError(f"upstream is no Kafka broker: {error}: check --upstream") from None
        if error.refused:
            raise ConfigError(f"cannot log in to the brokers: {error.first}") from None
        return FirstBrokers({}, untold=str(error))
    address_book.fit(list(nodes))
    unmapped = address_book.unmapped(list(nodes))
    if unmapped is not None:
        raise ConfigError(unmapped)
    return FirstBrokers(nodes)


class Discovery:
    """Asks the cluster for its brokers again and again, and logs when no broker answers."""

    def __init__(self, config: Config, address_book: AddressBook, states: BrokerStates) -> None:
        """Begin before the first question. Brokers are recorded in the address book, and in `states`."""
        self._config = config
        self._address_book = address_book
        self._states = states
        self._outage = Outage(log, "no broker answers", "brokers answer again", level="warning")
        self._waiting = Outage(
            log,
            "waiting for brokers, clients are refused",
            "brokers answer, clients can connect",
            level="warning",
        )

    async def first(self) -> FirstBrokers:
        """Ask for the brokers before Weir serves clients (`first_brokers`). If no broker can be reached, log
        that Weir waits for them. Raises ConfigError.
        """
        found = await first_brokers(self._config, self._address_book)
        if found.away:
            self._wait(found.away)
        return found

    @property
    def period_s(self) -> float:
        """Time (s) to the next question: short until the first broker has answered."""
        return WAITING_S if self._waiting else self._config.settings.refresh_s

    async def refresh(self) -> None:
        """Ask the cluster for its brokers; record new brokers and changed addresses in the address book."""
        self._address_book.try_again()
        known = self._address_book.candidates(self._config.upstream)
        try:
            nodes = await discover(known, self._config.connect_timeout_s, Access.of(self._config))
        except DiscoveryError as error:
            self._states.login_refused = str(error.first) if error.refused else ""
            misdirected = self._address_book.misdirected.items()
            reason = "; ".join([str(error), *(f"{address}: {why}" for address, why in misdirected)])
            if self._waiting and (error.foreign or not error.reachable):
                self._wait(reason.removeprefix("; "))
                return
            self._outage.failed(reason=reason.removeprefix("; "))
        else:
            self._outage.over()
            self._states.login_refused = ""
            self._record(nodes)
        self._waiting.over()

    def _wait(self, reason: str) -> None:
        self._waiting.failed(reason=reason, remedy="check --upstream if the brokers are up")

    def _record(self, nodes: dict[int, Address]) -> None:
        self._address_book.note_single(len(nodes) == 1)
        self._address_book.fit(list(nodes))
        for node_id, address in nodes.items():
            self._address_book.observe(node_id, address)
        self._address_book.left_out.keep(nodes)
        self._states.listed(nodes, list(self._address_book.nodes))


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
