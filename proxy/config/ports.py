"""The setting `broker_ports`: which ports brokers have."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Final

from weir.proxy.addresses import PORT_MAX, PortRange
from weir.proxy.config.settings import ConfigError
from weir.proxy.port_ranges import PortRanges
from weir.quotas.replication.throttles import NODE_ID_MAX

if TYPE_CHECKING:
    from weir.proxy.addresses import Address
    from weir.proxy.config.settings import Settings

BROKER_PORTS: Final = 100
"""Number of ports for brokers if broker_ports is not set."""
_RANGE: Final = re.compile(r"(\d{1,5})-(\d{1,5})(?:@(\d{1,10}))?", re.ASCII)


def broker_ports(settings: Settings, listen: Address) -> PortRanges:
    """Return the ports of brokers. `listen` is the bootstrap address. Raises ConfigError."""
    if settings.sni_domain:  # see `Config.advertised_listeners`
        return PortRanges((PortRange(listen.port, listen.port),))
    if not settings.broker_ports:
        first = listen.port + 1
        if first > PORT_MAX:
            raise ConfigError("no broker_ports above listen's 65535: set --broker-ports FIRST-LAST")
        return PortRanges((PortRange(first, min(first + BROKER_PORTS - 1, PORT_MAX)),))
    ranges: list[PortRange] = []
    for text in settings.broker_ports.split(","):
        follows = ranges[-1].last_node_id + 1 if ranges else 0
        ranges.append(_range(text.strip(), follows, listen))
    for one, other in combinations(ranges, 2):
        _check_apart(one, other)
    return PortRanges(tuple(ranges))


def _range(text: str, follows: int, listen: Address) -> PortRange:
    """Return the range of FIRST-LAST@ID; of FIRST-LAST, with `follows` as its first node id."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if match is None or not 0 < first <= last <= PORT_MAX:
        raise ConfigError(
            f"broker_ports is {text!r}, must be FIRST-LAST, for example 19093-19192, or several "
            "FIRST-LAST@NODE_ID, separated by commas"
        )
    if first <= listen.port <= last:
        raise ConfigError(
            f"broker_ports {text} contains the port of listen ({listen.port}): choose ports beside it"
        )
    if match[3] is not None and int(match[3]) > NODE_ID_MAX:
        raise ConfigError(f"broker_ports {text} has a node id above {NODE_ID_MAX}: choose a smaller one")
    return PortRange(first, last, follows if match[3] is None else int(match[3]))


def _check_apart(one: PortRange, other: PortRange) -> None:
    """Raise ConfigError if two ranges have a port or a node id in common."""
    if one.first <= other.last and other.first <= one.last:
        raise ConfigError(f"broker_ports has ports twice ({one}; {other}): choose ranges that do not overlap")
    if one.first_node_id <= other.last_node_id and other.first_node_id <= one.last_node_id:
        raise ConfigError(
            f"broker_ports has node ids twice ({one}; {other}): choose other first node ids, or fewer ports"
        )
