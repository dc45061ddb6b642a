"""Which broker listens where: on its own address, and on Weir's.

Clients must reach every broker through Weir, so each node id has a port of Weir's: FIRST + (node id - first
node id). The book learns brokers from discovery and from the very responses that pass through; a broker it
has not met gets its listener before the response that names it goes out. A node id outside the port range
gets none: it is left out of responses, and said once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import structlog

log = structlog.get_logger("weir.addresses")

PORT_MAX: Final = 65535


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PortRange:
    """The ports that brokers are given: node `first_node_id` has port `first`, the next one the next port."""

    first: int
    last: int
    first_node_id: int = 0

    def port(self, node_id: int) -> int | None:
        """Return the port of a node, None if it has none in this range."""
        port = self.first + node_id - self.first_node_id
        return port if self.first <= port <= self.last and node_id >= 0 else None

    @property
    def last_node_id(self) -> int:
        """The largest node id that has a port."""
        return self.first_node_id + self.last - self.first


OpenListener: TypeAlias = Callable[[int, int], None]
"""(node id, port): make the port accept connections from now on; raises OSError."""


class AddressBook:
    """What Weir knows of the cluster's brokers; one per process, used on one thread."""

    def __init__(self, ports: PortRange, open_listener: OpenListener) -> None:
        self._ports = ports
        self._open_listener = open_listener
        self._upstream: dict[int, Address] = {}
        self._left_out: set[int] = set()
        self.version = 0
        """Increases when an answer of `port` may have changed, so that what was made with it must be made
        again.
        """

    @property
    def nodes(self) -> dict[int, Address]:
        """Each known broker's own address, by node id."""
        return self._upstream

    def observe(self, node_id: int, upstream: Address) -> int | None:
        """Learn that a broker has this address; return its port of Weir's, or None if it is to be left
        out.
        """
        known = self._upstream.get(node_id)
        if known == upstream:
            return self._ports.port(node_id)
        port = self._ports.port(node_id)
        if port is None:
            self._leave_out(node_id, upstream)
            return None
        if known is None:
            if not self._opened(node_id, port):
                return None
            self.learn(node_id, upstream)
        else:
            self._know(node_id, upstream)
            log.info("broker moved", node_id=node_id, was=str(known), upstream=str(upstream), port=port)
        return port

    def learn(self, node_id: int, upstream: Address) -> None:
        """Learn of a broker whose listener is open already."""
        self._know(node_id, upstream)
        log.info("broker found", node_id=node_id, upstream=str(upstream), port=self._ports.port(node_id))

    def node_at(self, upstream: Address) -> int | None:
        """Return the node id of the broker that was last learnt to have this address, None if no one has.

        A broker that is gone keeps its entry; another may have been put in its place.
        """
        latest_first = reversed(self._upstream.items())
        return next((node_id for node_id, address in latest_first if address == upstream), None)

    def outside(self, node_ids: list[int]) -> str | None:
        """Say what to set if some of these node ids have no port; None if all have one."""
        strange = [node_id for node_id in sorted(node_ids) if self._ports.port(node_id) is None]
        if not strange:
            return None
        ports, first, last = self._ports, min(node_ids), max(node_ids)
        return (
            f"the cluster's node ids are {first} to {last}, but ports {ports.first}-{ports.last} "
            f"serve node ids {ports.first_node_id} to {ports.last_node_id}: {_remedy(ports, first, last)}"
        )

    def _know(self, node_id: int, upstream: Address) -> None:
        self._upstream.pop(node_id, None)  # the latest comes last: see `node_at`
        self._upstream[node_id] = upstream
        self.version += 1

    def _opened(self, node_id: int, port: int) -> bool:
        try:
            self._open_listener(node_id, port)
        except OSError as error:
            say = log.debug if node_id in self._left_out else log.error
            self._left_out.add(node_id)
            say(
                "no listener for broker, left out of responses: free the port, or move --broker-ports",
                node_id=node_id,
                port=port,
                error=str(error),
            )
            return False
        return True

    def _leave_out(self, node_id: int, upstream: Address) -> None:
        if node_id in self._left_out:
            return
        self._left_out.add(node_id)
        log.warning(
            "broker left out of responses: no port for it, see --broker-ports and --first-node-id",
            node_id=node_id,
            upstream=str(upstream),
            ports=f"{self._ports.first}-{self._ports.last}",
            first_node_id=self._ports.first_node_id,
        )


def _remedy(ports: PortRange, first_id: int, last_id: int) -> str:
    """Say what to set so that these node ids have ports: no range narrower than the present one."""
    last = max(ports.last, ports.first + last_id - first_id)
    if last > PORT_MAX:
        return (
            f"set --first-node-id {first_id}, and --broker-ports to a range of {last_id - first_id + 1} ports"
        )
    first_node_id = "" if first_id == ports.first_node_id else f" --first-node-id {first_id}"
    broker_ports = "" if last == ports.last else f" --broker-ports {ports.first}-{last}"
    return f"set{first_node_id}{broker_ports}"


@dataclass(frozen=True, slots=True)
class AdvertisedAddresses:
    """What one client is told about brokers: Weir's host as that client reaches it, and a port per broker."""

    host: str
    book: AddressBook

    def of(self, node_id: int, upstream: Address) -> Address | None:
        """Return where the client reaches this broker through Weir, None if nowhere."""
        port = self.book.observe(node_id, upstream)
        return None if port is None else Address(self.host, port)
