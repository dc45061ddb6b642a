"""Addresses of brokers: their own, and the listeners that Weir advertises for them.

Clients must reach every broker through Weir. Either each node id has a port of Weir's, FIRST + (node id -
first node id), or all brokers share one port and clients choose the broker by server name (TLS SNI). Weir
learns brokers from discovery and from responses that it forwards. A new broker gets its listener before the
response that names the broker is sent. A node id outside the ports gets no listener: the broker is removed
from responses (`left_out`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

import structlog

from weir.proxy.left_out import LeftOutBrokers

log = structlog.get_logger("weir.addresses")

PORT_MAX: Final = 65535


class Address(NamedTuple):
    """A host and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AdvertisedListeners(Protocol):
    """The host and port of Weir's listener for each broker, as in responses to clients."""

    def port(self, node_id: int) -> int | None:
        """Return the port of Weir's listener for a node; None if the node has no listener."""

    def host(self, node_id: int, host: str) -> str:
        """Return the host of a node in responses to clients; `host` is the address at which the client has
        reached Weir.
        """

    def fitted(self, node_ids: list[int]) -> AdvertisedListeners:
        """Return listeners that serve these node ids; these listeners themselves if they do, or if nothing
        can be derived.
        """

    def unmapped(self, node_ids: list[int]) -> str | None:
        """Return a line that tells operators which settings to change, if some of these node ids have no
        listener; None if all have one.
        """


@dataclass(frozen=True, slots=True)
class PortRange:
    """A port for each broker: node `first_node_id` has port `first`, the next node the next port."""

    first: int
    last: int
    first_node_id: int = 0

    def __str__(self) -> str:
        return f"ports {self.first}-{self.last}, node ids from {self.first_node_id}"

    def port(self, node_id: int) -> int | None:
        """Return the port of a node; None if the node id is out of range."""
        port = self.first + node_id - self.first_node_id
        return port if self.first <= port <= self.last and node_id >= 0 else None

    def fitted(self, node_ids: list[int]) -> PortRange:
        """Return a range of the same ports that serves these node ids. Return this range itself if it serves
        them, if no such range exists, or if the first node id is configured (not 0).

        The first node id is a multiple of the number of ports. So the result is the same at each start, even
        if some brokers are down.
        """
        if self.first_node_id or self.unmapped(node_ids) is None:
            return self
        count = self.last - self.first + 1
        found = PortRange(self.first, self.last, min(node_ids) // count * count)
        return self if found.unmapped(node_ids) is not None else found

    @property
    def last_node_id(self) -> int:
        """Largest node id for which the range has a port."""
        return self.first_node_id + self.last - self.first

    def host(self, _node_id: int, host: str) -> str:
        """Return `host` unchanged: clients reach every broker at the address at which they have reached
        Weir.
        """
        return host

    def unmapped(self, node_ids: list[int]) -> str | None:
        """Return a line that tells operators which settings to change, if some of these node ids have no
        port; None if all have one.
        """
        strange = [node_id for node_id in sorted(node_ids) if self.port(node_id) is None]
        if not strange:
            return None
        first, last = min(node_ids), max(node_ids)
        return (
            f"the cluster's node ids are {first} to {last}, but ports {self.first}-{self.last} "
            f"serve node ids {self.first_node_id} to {self.last_node_id}: {_remedy(self, first, last)}"
        )


_BROKER_NAME: Final = re.compile(r"broker-(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class ServerNames:
    """All brokers on one port: node 7 is called `broker-7.DOMAIN`."""

    domain: str
    """Domain of the brokers' names, in lower case, without a final dot."""
    at_port: int

    def __str__(self) -> str:
        return f"port {self.at_port}, names broker-ID.{self.domain}"

    def port(self, node_id: int) -> int | None:
        """Return the port that all brokers share; None for a negative node id, because such an id stands for
        no broker.
        """
        return self.at_port if node_id >= 0 else None

    def host(self, node_id: int, _host: str) -> str:
        """Return the name of a node, such as `broker-7.DOMAIN`."""
        return f"broker-{node_id}.{self.domain}"

    def fitted(self, _node_ids: list[int]) -> ServerNames:
        """Return these names: they serve every node id."""
        return self

    def unmapped(self, _node_ids: list[int]) -> str | None:
        """Return None, which stands for no settings to change: every node id has a server name."""
        return None

    def node_id(self, name: str | None) -> int | None:
        """Return the node id in a server name; None for `bootstrap.DOMAIN`, any other name, and no name.

        Clients that bootstrap at an IP address send no name, and others may know Weir by an older name. Both
        may connect: the first response tells them the brokers' names.
        """
        first, _, rest = (name or "").lower().rstrip(".").partition(".")
        found = _BROKER_NAME.fullmatch(first) if rest == self.domain else None
        return int(found[1]) if found else None


OpenListener: TypeAlias = Callable[[int, int], None]
"""Function (node id, port) that makes the port accept connections; raises OSError."""


class AddressBook:
    """The addresses of the cluster's brokers. One per process, used on one thread."""

    def __init__(self, listeners: AdvertisedListeners, open_listener: OpenListener) -> None:
        self._listeners = listeners
        self._open_listener = open_listener
        self._upstream: dict[int, Address] = {}
        self.left_out = LeftOutBrokers()
        """Brokers of the cluster that have no listener."""
        self.version = 0
        """Number of changes that may have changed a result of `port`; responses cached before a change are
        stale.
        """
        self.on_change: list[Callable[[], None]] = []
        """Functions to call after each change of `nodes` or `misdirected`, also within a turn of the reactor.
        """
        self.misdirected: Mapping[Address, str] = {}
        """Addresses, of brokers or of `upstream`, that lead to no broker, each with the reason; `misdirect`
        replaces them.
        """
        self._is_single = False

    @property
    def nodes(self) -> dict[int, Address]:
        """Address of each known broker, by node id."""
        return self._upstream

    @property
    def listeners(self) -> str:
        """Weir's listeners for brokers, as text for operators."""
        return str(self._listeners)

    def port(self, node_id: int) -> int | None:
        """Return the port of Weir's listener for a node; None if the node can have no listener."""
        return self._listeners.port(node_id)

    def fit(self, node_ids: list[int]) -> None:
        """Derive the first node id of the port range from the cluster's node ids, if these do not fit the
        range. Do nothing if the first node id is configured, or if a broker is known already.
        """
        if self._upstream:
            return
        found = self._listeners.fitted(node_ids)
        if found is not self._listeners:
            self._listeners = found
            log.info("first node id derived from the cluster's node ids", listeners=str(found))

    def observe(self, node_id: int, upstream: Address) -> int | None:
        """Record the address of a broker, and open its listener if it is new. Return the broker's port at
        Weir; None if it has no listener.
        """
        known = self._upstream.get(node_id)
        if known == upstream:
            return self._listeners.port(node_id)
        port = self._listeners.port(node_id)
        if port is None:
            self._note_unmapped(node_id, upstream)
            return None
        if known is None:
            if not self._opened(node_id, upstream, port):
                return None
            self.left_out.end(node_id, "it has a listener now")
            self.learn(node_id, upstream)
        else:
            self._know(node_id, upstream)
            log.info("broker moved", node_id=node_id, was=str(known), upstream=str(upstream), port=port)
        return port

    def hold_ms(self) -> int:
        """Return the time (ms) for which to hold a response that names brokers, until all of them may be told
        to clients; 0 for no hold.
        """
        return 0

    def learn(self, node_id: int, upstream: Address) -> None:
        """Record the address of a broker whose listener is open already."""
        self._know(node_id, upstream)
        log.info("broker found", node_id=node_id, upstream=str(upstream), port=self._listeners.port(node_id))

    def try_again(self) -> None:
        """If brokers are left out, have the next responses that name them try again to open their listeners:
        responses cached before are stale.
        """
        if self.left_out:
            self.version += 1

    @property
    def sole(self) -> int | None:
        """Node id of the only broker that the cluster has; None if it may have others. Every address of
        `upstream` is that broker's.
        """
        return next(iter(self._upstream)) if self._is_single and len(self._upstream) == 1 else None

    def note_single(self, is_single: bool) -> None:
        """Record if the cluster has listed one broker only."""
        if is_single != self._is_single:
            self._is_single = is_single
            self._changed()

    def misdirect(self, misdirected: Mapping[Address, str]) -> None:
        if misdirected != self.misdirected:
            self.misdirected = misdirected
            self._changed()

    @property
    def without_broker(self) -> dict[Address, str]:
        """Addresses in `misdirected`, without the address of a cluster's only broker, which `upstream`
        replaces.
        """
        replaced = None if self.sole is None else self._upstream[self.sole]
        return {address: reason for address, reason in self.misdirected.items() if address != replaced}

    def candidates(self, upstream: Iterable[Address]) -> list[Address]:
        """Return the addresses at which Weir may ask the cluster: those of the known brokers, then those of
        `upstream`, without those that lead to no broker.
        """
        every = dict.fromkeys([*self._upstream.values(), *upstream])
        return [address for address in every if address not in self.misdirected]

    def addresses_of(self, node_id: int, upstream: Iterable[Address]) -> list[Address]:
        """Return the addresses of a known broker, the one that it advertises first. Those of `upstream`
        follow if the cluster has no other broker.
        """
        others = () if self.sole is None else upstream
        return list(dict.fromkeys([self._upstream[node_id], *others]))

    def host(self, node_id: int, host: str) -> str:
        """Return the host of a node in responses to clients; `host` is the address at which the client has
        reached Weir.
        """
        return self._listeners.host(node_id, host)

    def unmapped(self, node_ids: list[int]) -> str | None:
        """Return a line that tells operators which settings to change, if some of these node ids have no
        listener; None if all have one.
        """
        return self._listeners.unmapped(node_ids)

    def node_at(self, upstream: Address) -> int | None:
        """Return the node id of the broker that was last seen at this address; None if no broker was ever
        seen there. A broker that was removed from the cluster keeps its entry, so another broker may use the
        address now.
        """
        latest_first = reversed(self._upstream.items())
        return next((node_id for node_id, address in latest_first if address == upstream), None)

    def _know(self, node_id: int, upstream: Address) -> None:
        self._upstream.pop(node_id, None)  # inserted again as the latest, for `node_at`
        self._upstream[node_id] = upstream
        self.version += 1
        self._changed()

    def _changed(self) -> None:
        for call in self.on_change:
            call()

    def _opened(self, node_id: int, upstream: Address, port: int) -> bool:
        try:
            self._open_listener(node_id, port)
        except OSError as error:
            reason = f"cannot listen on port {port}: {(error.strerror or str(error)).lower()}"
            remedy = "free the port, or move --broker-ports"
            self.left_out.note(node_id, upstream=str(upstream), reason=reason, remedy=remedy)
            return False
        return True

    def _note_unmapped(self, node_id: int, upstream: Address) -> None:
        if node_id >= 0:  # a negative node id stands for no broker
            remedy = self._listeners.unmapped([*self._upstream, node_id])
            self.left_out.note(node_id, upstream=str(upstream), reason="no port for it", remedy=remedy)


def _remedy(ports: PortRange, first_id: int, last_id: int) -> str:
    """Return the advice for operators: the settings to change so that these node ids have ports. The advised
    range of ports is never smaller than the present one.
    """
    last = max(ports.last, ports.first + last_id - first_id)
    if last > PORT_MAX:
        return f"set --broker-ports to a range of {last_id - first_id + 1} ports, FIRST-LAST@{first_id}"
    return f"set --broker-ports {ports.first}-{last}@{first_id}"


@dataclass(frozen=True, slots=True)
class AdvertisedAddresses:
    """The addresses of brokers that Weir tells one client. `host` is the address at which that client has
    reached Weir.
    """

    host: str
    address_book: AddressBook

    def of(self, node_id: int, upstream: Address) -> Address | None:
        """Return the address at which the client reaches this broker through Weir; None if the broker has no
        listener.
        """
        port = self.address_book.observe(node_id, upstream)
        return None if port is None else Address(self.address_book.host(node_id, self.host), port)


@dataclass(frozen=True, slots=True)
class UnchangedAddresses(AdvertisedAddresses):
    """The addresses that brokers tell each other at a replication listener. They are Weir's own already, so
    they stay, and the address book learns nothing from them.
    """

    def of(self, _node_id: int, upstream: Address) -> Address:
        """Return the address that the broker has sent."""
        return upstream
