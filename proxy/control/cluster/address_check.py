"""Which addresses of brokers lead to no broker: they are right for somebody else.

- Weir itself listens there: it took over the address of a former proxy, or a container's `localhost`.
- The connection leads back to Weir through another Weir, NAT or a load balancer. To find out, Weir sends
  ApiVersions with a client-id of its own, which it recognizes at its listeners.
- The address is a loopback address, but the brokers are on other hosts.
"""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.proxy.addresses import Address, AddressBook
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import API_VERSIONS_VERSION
from weir.proxy.handlers.api_versions.api_versions import OWN_REQUEST
from weir.proxy.net.own_listeners import OwnListeners, is_local
from weir.proxy.net.sockets import look_up
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weir.proxy.config.config import Config
    from weir.proxy.control.supervisor import Works

log = structlog.get_logger("weir")

LOOK_S: Final = 1.0
"""Time (s) between two checks of an address that leads to no broker, or that did not answer: a ring of Weirs
fills up with connections once the last of them has started.
"""
VALID_S: Final = 60.0
"""Time (s) for which the check of an address that leads to a broker is valid."""
ANSWER_S_MAX: Final = 2.0
"""Maximum time (s) of a check: Weir answers itself at once."""
CHECKS_MAX: Final = 20
"""Maximum number of checks at a time, with a connection each."""
OWN: Final = "Weir itself listens there"
LOOP: Final = "the connection leads back to this Weir"
OTHER_HOST: Final = "a loopback address, but the brokers are on other hosts"


class AddressCheck:
    """Checks the addresses in an address book and in `upstream`, and sets `AddressBook.misdirected`."""

    def __init__(self, config: Config, address_book: AddressBook, own_listeners: OwnListeners) -> None:
        """Begin before the first check."""
        self._config = config
        self._address_book = address_book
        self._own_listeners = own_listeners
        self._access = Access(None, config.tls.upstream)  # ApiVersions comes before a login
        self._limiter = trio.CapacityLimiter(CHECKS_MAX)
        self._due_s: dict[Address, float] = {}
        """Time (s) of each address's next check."""
        self._outages: dict[Address, Outage] = {}
        """The addresses that lead to no broker."""

    async def run(self, works: Works) -> None:
        """Check each new address at once, and all of them again and again, until cancelled."""
        token = trio.lowlevel.current_trio_token()
        changed = trio.Event()

        def note() -> None:
            token.run_sync_soon(lambda: changed.set())

        self._address_book.on_change.append(note)
        try:
            while True:
                changed = trio.Event()
                await self.look()
                works()
                with trio.move_on_after(LOOK_S):
                    await changed.wait()
        finally:
            self._address_book.on_change.remove(note)

    async def look(self) -> None:
        """Check the addresses whose check is due."""
        nodes = self._address_book.nodes
        every = dict.fromkeys([*self._config.upstream, *nodes.values()])
        misdirected = {at: why for at, why in self._address_book.misdirected.items() if at in every}
        now_s = trio.current_time()
        self._due_s = {address: self._due_s.get(address, now_s) for address in every}
        async with trio.open_nursery() as nursery:
            for address, due_s in self._due_s.items():
                if due_s <= now_s:
                    nursery.start_soon(self._check, address, misdirected)
        self._address_book.misdirect(misdirected)
        self._log(misdirected)

    async def _check(self, address: Address, misdirected: dict[Address, str]) -> None:
        """Check an address, and change its entry in `misdirected`; nothing if the result is not clear."""
        async with self._limiter:
            reason = await self._reason(address)
        self._due_s[address] = trio.current_time() + (VALID_S if reason == "" else LOOK_S)
        if reason:
            misdirected[address] = reason
        elif reason is not None:
            misdirected.pop(address, None)

    async def _reason(self, address: Address) -> str | None:
        """Return the reason why the address leads to no broker; empty if it leads to one; None if that is not
        known.
        """
        try:
            with trio.fail_after(ANSWER_S_MAX):
                targets = await _targets(address)
                if targets and all(self._own_listeners.has(ip, address.port) for ip in targets):
                    return OWN
                if await self._is_of_other_host(address, targets):
                    return OTHER_HOST
                async with await self._access.connect(address, ANSWER_S_MAX) as connection:
                    ask = partial(connection.ask, client_id=self._config.own_client_id.encode())
                    answer = await ask(ApiVersionsRequest(), ApiVersionsResponse, API_VERSIONS_VERSION)
        except (OSError, trio.TooSlowError, QuestionError, ConfigError):
            return None
        return LOOP if answer.error_code == OWN_REQUEST else ""

    async def _is_of_other_host(self, address: Address, targets: Iterable[str]) -> bool:
        """Return True if the address of a broker is a loopback address, and no address of `upstream` is one
        of this host.
        """
        upstream = self._config.upstream
        if address in upstream or not all(map(_is_loopback, targets)):
            return False
        others = [ip for each in upstream for ip in await _targets(each)]
        return not any(map(is_local, others))

    def _log(self, misdirected: dict[Address, str]) -> None:
        for address in self._outages.keys() - misdirected.keys():
            self._outages.pop(address).over(address=str(address))
        for address, reason in misdirected.items():
            outage = self._outages.get(address)
            if outage is None:
                outage = Outage(
                    log,
                    "address leads to no broker, not used",
                    "address is used again",
                    level="error" if address in self._address_book.without_broker else "warning",
                )
                self._outages[address] = outage
            node_id = self._address_book.node_at(address)
            remedy = "correct upstream" if node_id is None else "correct the broker's advertised.listeners"
            outage.failed(address=str(address), node_id=node_id, reason=reason, remedy=remedy)


async def _targets(address: Address) -> list[str]:
    return [str(target[0]) for _family, target in await look_up(address)]


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip.partition("%")[0])
    return address.is_loopback or address.is_unspecified
