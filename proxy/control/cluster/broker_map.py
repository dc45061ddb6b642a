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
- A file that cannot be read is logged and ignored, because it must not stop Weir.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import structlog
import trio

from weir.proxy.addresses import PORT_MAX, Address, AddressBook
from weir.proxy.atomic_write import replace
from weir.proxy.files import read_text
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from weir.proxy.config.config import Config
    from weir.proxy.control.supervisor import Works

log = structlog.get_logger("weir")

BROKERS_MAX: Final = 2_000
"""Maximum number of brokers in the file: as many as a response may have."""
BYTES_MAX: Final = 1024 * 1024
"""Maximum size (bytes) of a file that is read."""
RETRY_S: Final = 10.0
"""Time (s) between two attempts to write the file while it cannot be written."""
NAME: Final = "brokers.json"
"""Name of the file in a service's state directory."""


class BrokerMapError(Exception):
    """Error: the file cannot be used. The text is one line."""


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


def path_of(config: Config, environment: Mapping[str, str]) -> Path | None:
    """Return the path of the broker map: `broker_map_file`; else a file beside `quota_snapshot`; else a file
    in the state directory that systemd names in STATE_DIRECTORY. None if no directory is known.
    """
    settings = config.settings
    if settings.broker_map_file:
        return Path(settings.broker_map_file)
    if settings.quota_snapshot:
        return Path(f"{settings.quota_snapshot}.{NAME}")
    state = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(state) / NAME if state else None


def read(path: Path, upstream: Sequence[Address]) -> dict[int, Address]:
    """Return the brokers in the file by node id; none if the file does not exist. Raises BrokerMapError."""
    try:
        content = read_text(path, BYTES_MAX)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise BrokerMapError(error.strerror or str(error)) from None
    try:
        found = msgspec.json.decode(content, type=_Map)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BrokerMapError(f"no broker map: {error}") from None
    if found.upstream and not set(found.upstream) & set(map(str, upstream)):
        raise BrokerMapError(f"the map of another cluster, whose upstream is {', '.join(found.upstream[:3])}")
    return {broker.node_id: Address(broker.host, broker.port) for broker in found.brokers}


def write(path: Path, upstream: Sequence[Address], nodes: Mapping[int, Address]) -> None:
    """Replace the file by one with these brokers; of more than `BROKERS_MAX`, those at the end of `nodes`.
    Raises OSError.
    """
    kept = islice(nodes.items(), max(len(nodes) - BROKERS_MAX, 0), None)
    brokers = [_Broker(node_id, *address) for node_id, address in kept]
    content = _Map(brokers, list(map(str, upstream)), time.time_ns() // 1_000_000)
    replace(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


class BrokerMap:
    """Keeps the file equal to an address book."""

    def __init__(self, path: Path, upstream: Sequence[Address]) -> None:
        """Begin without reading the file."""
        self._path = path
        self._upstream = upstream
        self._written: dict[int, Address] = {}
        """Brokers in the file."""
        self._outage = Outage(log, "broker map not written", "broker map written again")

    def read(self) -> dict[int, Address]:
        """Return the brokers in the file by node id; none if the file is missing. Log a file that cannot be
        used, and return none.
        """
        try:
            self._written = read(self._path, self._upstream)
        except BrokerMapError as error:
            log.error("broker map ignored", file=str(self._path), reason=str(error))
        return self._written.copy()

    async def keep(self, address_book: AddressBook, works: Works) -> None:
        """Write the address book to the file after each change, until cancelled."""
        token = trio.lowlevel.current_trio_token()
        changed = trio.Event()

        def note() -> None:
            token.run_sync_soon(lambda: changed.set())

        address_book.on_change.append(note)
        try:
            while True:
                changed = trio.Event()
                await self._update(address_book.nodes.copy())
                works()
                with trio.move_on_after(RETRY_S if self._outage else float("inf")):
                    await changed.wait()
        finally:
            address_book.on_change.remove(note)

    async def _update(self, nodes: dict[int, Address]) -> None:
        if not nodes or nodes == self._written:
            return
        try:
            await trio.to_thread.run_sync(write, self._path, self._upstream, nodes)
        except OSError as error:
            self._outage.failed(file=str(self._path), reason=error.strerror or str(error))
        else:
            self._outage.over(file=str(self._path))
            self._written = nodes
