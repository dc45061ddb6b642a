"""The broker map: a file with the addresses of the cluster's brokers, for starts without an answer of theirs.

Brokers that require a login do not list themselves to a Weir without credentials. After a restart such a Weir
would know no broker until a client has bootstrapped, and would refuse clients that remember the brokers'
addresses at Weir. So Weir writes each change of its address book to the file, and opens these brokers'
listeners at the next start.

- The map is used only if no broker lists the brokers. A list from a broker is newer.
- A map has no maximum age. It is written when it changes, so an old map is usually right. A listener whose
  address is outdated refuses connections, as the broker's host would; without the listener clients would be
  refused too. The first response with the broker's new address corrects the map.
- A map of another cluster is ignored: one address of `upstream` must be among the addresses in the map.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Final

import msgspec

from weir.proxy.addresses import PORT_MAX, Address, AddressBook
from weir.proxy.control.state_directory import PERIOD_S, Put, StateDirectory

BROKERS_MAX: Final = 2_000
"""Maximum number of brokers in the file: as many as a response may have."""
BYTES_MAX: Final = 1024 * 1024
"""Maximum size (bytes) of a file that is read."""


class _Broker(msgspec.Struct, frozen=True):
    node_id: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    port: Annotated[int, msgspec.Meta(ge=1, le=PORT_MAX)]


class _Map(msgspec.Struct, frozen=True):
    brokers: Annotated[list[_Broker], msgspec.Meta(max_length=BROKERS_MAX)]
    """Brokers, those whose addresses were learned last at the end."""
    upstream: list[str] = []
    """Values of `upstream` when the map was written; empty in a file written by hand, for any `upstream`."""
    written_ms: int = 0
    """Time (Unix ms) of the last change."""


class BrokerMap:
    """Keeps the file equal to an address book."""

    name: Final = "brokers.json"
    period_s: Final = PERIOD_S

    def __init__(self, state: StateDirectory, upstream: Sequence[Address], address_book: AddressBook) -> None:
        self._state = state
        self._upstream = [str(address) for address in upstream]
        self._address_book = address_book
        self._written: dict[int, Address] = {}
        """Brokers in the file."""

    def read(self) -> dict[int, Address]:
        """Return the brokers in the file by node id; none if the file is missing or cannot be used."""
        self._written = self._state.read(self.name, BYTES_MAX, self._parsed) or {}
        return self._written.copy()

    def _parsed(self, text: str) -> dict[int, Address]:
        found = msgspec.json.decode(text, type=_Map)
        if found.upstream and not set(found.upstream) & set(self._upstream):
            others = ", ".join(found.upstream[:3])
            raise ValueError(f"the map of another cluster, whose upstream is {others}")
        return {broker.node_id: Address(broker.host, broker.port) for broker in found.brokers}

    async def save(self, put: Put) -> None:
        """Write the address book, unless it is empty: an empty map would replace a good one. Of more than
        `BROKERS_MAX` brokers, write those that were learned last.
        """
        nodes = self._address_book.nodes.copy()
        if not nodes or nodes == self._written:
            return
        kept = islice(nodes.items(), max(len(nodes) - BROKERS_MAX, 0), None)
        brokers = [_Broker(node_id, *address) for node_id, address in kept]
        content = msgspec.json.encode(_Map(brokers, self._upstream, time.time_ns() // 1_000_000))
        if await put(msgspec.json.format(content) + b"\n"):
            self._written = nodes
