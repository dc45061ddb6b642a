"""What the server does while no client asks: follow brokers that come and move, forget idle budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import structlog
import trio

from proxy.addresses import Address, AddressBook
from proxy.cluster.access import Access
from proxy.cluster.discovery import DiscoveryError, discover
from proxy.config import Config, ConfigError

log = structlog.get_logger("weir")

EXPIRY_S: Final = 30.0
"""How often idle budgets are looked for, as Kafka looks for idle sensors."""


async def first_brokers(config: Config, book: AddressBook) -> tuple[dict[int, Address], str]:
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
    outside = book.outside(list(nodes))
    if outside is not None:
        raise ConfigError(outside)
    return nodes, ""


async def refresh_forever(config: Config, book: AddressBook) -> None:
    """Follow brokers that come, and move."""
    settings = config.settings
    while True:
        await trio.sleep(settings.refresh_s)
        try:
            known = [*book.nodes.values(), *config.upstream]
            nodes = await discover(known, settings.connect_timeout_s, Access.of(config))
        except DiscoveryError as error:
            log.warning("no broker answers", reason=str(error))
            continue
        for node_id, address in nodes.items():
            book.observe(node_id, address)


async def expire_forever(expiring: Iterable[Callable[[int], object]], now_ms: Callable[[], int]) -> None:
    """Forget budgets that were not used for long; each call is told the time, in ms."""
    while True:
        await trio.sleep(EXPIRY_S)
        for expire in expiring:
            expire(now_ms())
