"""Replication listeners in the configuration: listeners at which brokers reach each other through Weir.

Each broker advertises Weir's address for its inter-broker listener. So the real addresses of these listeners
cannot be discovered, and the operator configures them by node id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from weir.proxy.addresses import PORT_MAX, Address
from weir.proxy.config.addresses import parse_address
from weir.proxy.config.principals import parse_principals
from weir.proxy.config.settings import ConfigError
from weir.quotas.replication.throttles import NODE_ID_MAX

if TYPE_CHECKING:
    from weir.proxy.config.settings import Settings

StoredBy: TypeAlias = Literal["weir", "brokers"]
_VOTER: Final = re.compile(r"(0|[1-9][0-9]{0,9})@(.*)", re.ASCII)
_THIS_HOST: Final = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The replication listeners, and the principals that are brokers there."""

    upstream: Mapping[int, Address]
    """Real address of each broker's inter-broker listener, by node id; empty if there are no replication
    listeners.
    """
    listen: Mapping[int, Address]
    """Address of Weir's replication listener for each broker of `upstream`, by node id. The host may be
    empty, which stands for all interfaces.
    """
    principals: frozenset[str]
    """Names of the brokers' principals; empty if every principal at a replication listener is a broker."""
    throttles_stored_by: StoredBy | None = None
    """Side that stores the replication throttles which clients set over Kafka's protocol; None without
    replication listeners, and if ZooKeeper has the throttles.
    """


TakenPorts: TypeAlias = tuple[str, int, int]
"""A listener's key in the configuration, and its first and last port."""


def replication_rules(settings: Settings, taken: Sequence[TakenPorts]) -> ReplicationRules:
    """Return the rules that the settings describe. `taken` has the first and the last port of Weir's other
    listeners, by the key that sets them. Raises ConfigError.
    """
    principals = parse_principals(settings.super_users, "super_users")
    upstream = dict(_voters(settings.replication_upstream))
    if not (upstream or settings.replication_listen):
        _check_unused(settings)
        return ReplicationRules({}, {}, principals)
    if not upstream:
        raise ConfigError(
            "replication_listen is set without replication_upstream: say where the brokers' inter-broker "
            "listeners are, ID@HOST:PORT[,ID@HOST:PORT...]"
        )
    if not settings.replication_listen:
        raise ConfigError(
            "replication_upstream is set without replication_listen: say where brokers reach Weir, "
            "ID@HOST:PORT"
        )
    first_node_id, at = _first_listener(settings.replication_listen)
    first = parse_address(at, "replication_listen", host_needed=False)
    listen = {node_id: _listen(node_id, first, first_node_id) for node_id in upstream}
    _check_ports(listen, taken)
    _check_loops(upstream, listen)
    return ReplicationRules(upstream, listen, principals, _stored_by(settings.replication_throttles))


def _check_unused(settings: Settings) -> None:
    if settings.replication_throttles != "weir":
        raise ConfigError(
            "replication_throttles goes with replication_upstream: set that too, or leave it out"
        )


def _stored_by(source: str) -> StoredBy | None:
    """Return the side that stores throttles; None for a ZooKeeper. Raises ConfigError."""
    match source:
        case "weir":
            return "weir"
        case "brokers":
            return "brokers"
    hosts, _slash, _chroot = source.partition("/")
    try:
        for host in hosts.split(","):
            parse_address(host, "replication_throttles")
    except ConfigError:
        raise ConfigError(
            f"replication_throttles is {source!r}, must be weir, brokers, or the address of ZooKeeper, "
            "HOST:PORT[,HOST:PORT...][/CHROOT]"
        ) from None
    return None


def _voters(text: str) -> Iterator[tuple[int, Address]]:
    """Yield node ids and addresses of text in the syntax of Kafka's `controller.quorum.voters`. Raises
    ConfigError.
    """
    key = "replication_upstream"
    seen: dict[Address, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _VOTER.fullmatch(part)
        if match is None or int(match[1]) > NODE_ID_MAX:
            raise ConfigError(f"{key} has {part!r}, must be ID@HOST:PORT, for example 1@kafka-1:9093")
        node_id = int(match[1])
        if node_id in seen.values():
            raise ConfigError(f"{key} has broker {node_id} twice: leave out one of its addresses")
        address = parse_address(match[2], f"{key} of broker {node_id}")
        if address in seen:
            raise ConfigError(
                f"{key} has {address} for brokers {seen[address]} and {node_id}: give each its own"
            )
        seen[address] = node_id
        yield node_id, address


def _first_listener(text: str) -> tuple[int, str]:
    """Return the node id and the address in text like [ID@]HOST:PORT; 0 without an id. Raises ConfigError."""
    match = _VOTER.fullmatch(text)
    if match is None and "@" in text:
        raise ConfigError(
            f"replication_listen is {text!r}, must be HOST:PORT or ID@HOST:PORT, for example 1@:19293"
        )
    return (0, text) if match is None else (int(match[1]), match[2])


def _listen(node_id: int, first: Address, first_node_id: int) -> Address:
    """Return the address of Weir's replication listener for a broker. Raises ConfigError."""
    port = first.port + node_id - first_node_id
    if node_id < first_node_id:
        raise ConfigError(
            f"replication_upstream has broker {node_id}, but replication_listen begins with "
            f"{first_node_id}@: begin with the smallest node id of the cluster"
        )
    if port > PORT_MAX:
        raise ConfigError(
            f"replication_listen gives broker {node_id} port {port}, above {PORT_MAX}: choose a smaller "
            "port, or put the smallest node id of the cluster and @ before it"
        )
    return first._replace(port=port)


def _check_ports(listen: Mapping[int, Address], taken: Sequence[TakenPorts]) -> None:
    for node_id, address in listen.items():
        for key, first, last in taken:
            if first <= address.port <= last:
                shown = key if first == last else f"{key} ({first}-{last})"
                raise ConfigError(
                    f"replication_listen gives broker {node_id} port {address.port}, which belongs to "
                    f"{shown}: choose other ports"
                )


def _check_loops(upstream: Mapping[int, Address], listen: Mapping[int, Address]) -> None:
    ours = {_plain(address) for address in listen.values()}
    for node_id, address in upstream.items():
        if _plain(address) in ours:
            raise ConfigError(
                f"replication_upstream has {address} for broker {node_id}, which is Weir's own address: give "
                "the address at which the broker itself listens"
            )


def _plain(address: Address) -> Address:
    """Return the address in lower case, with an empty host for this machine."""
    host = address.host.lower()
    return Address("" if host in _THIS_HOST else host, address.port)
