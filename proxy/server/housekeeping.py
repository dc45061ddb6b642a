"""What the server does while no client asks: follow brokers that come and move, forget idle budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import structlog
import trio

from proxy.addresses import Address, AddressBook
from proxy.config.config import Config, ConfigError
from proxy.control.cluster.access import Access
from proxy.control.cluster.discovery import DiscoveryError, discover

log = structlog.get_logger("weir")

EXPIRY_S: Final = 30.0
"""How often idle budgets are looked for, as Kafka looks for idle sensors."""


async def first_brokers(config: Config, address_book: AddressBook) -> tuple[dict[int, Address], str]:
    """Return the cluster's brokers, all of which have ports; or none, and why the upstream does not tell.

    Raises ConfigError if there is nothing that could be a Kafka broker, if TLS fails, if Weir's
    credentials are refused, or if the ports do not fit.
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
    """Ask the cluster which brokers have come, and moved."""
    try:
        known = [*address_book.nodes.values(), *config.upstream]
        nodes = await discover(known, config.settings.connect_timeout_s, Access.of(config))
    except DiscoveryError as error:
        log.warning("no broker answers", reason=str(error))
        return
    for node_id, address in nodes.items():
        address_book.observe(node_id, address)


class Expiring(Protocol):
    """Has budgets."""

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget those that were not used for long, in steps; yield how many each step has forgotten."""


async def expire(quotas: Expiring, now_ms: Callable[[], int]) -> None:
    """Forget budgets that were not used for long; sockets have their turn between two steps."""
    for _forgotten in quotas.expire(now_ms()):
        await trio.lowlevel.checkpoint()
