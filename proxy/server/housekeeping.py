"""Periodic tasks of the server: find brokers that are new or have moved, expire idle budgets."""

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
"""Time (s) between looking for idle budgets, as Kafka does for idle sensors."""


async def first_brokers(config: Config, address_book: AddressBook) -> tuple[dict[int, Address], str]:
    """Return the cluster's brokers, which all have ports; or none, and why the upstream does not list
    them.

    Raises ConfigError if no address can be a Kafka broker, if TLS fails, if Weir's credentials are refused,
    or if the ports do not fit.
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
    """Ask the cluster for brokers that are new or have moved."""
    try:
        known = [*address_book.nodes.values(), *config.upstream]
        nodes = await discover(known, config.settings.connect_timeout_s, Access.of(config))
    except DiscoveryError as error:
        log.warning("no broker answers", reason=str(error))
        return
    for node_id, address in nodes.items():
        address_book.observe(node_id, address)


class Expiring(Protocol):
    """An object with budgets."""

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove budgets unused for long, in steps; yield the number removed by each step."""


async def expire(quotas: Expiring, now_ms: Callable[[], int]) -> None:
    """Remove budgets unused for long; sockets are served between steps."""
    for _forgotten in quotas.expire(now_ms()):
        await trio.lowlevel.checkpoint()
