"""The brokers that a worker names to clients: those for which the supervisor has a listener.

A response that names a new broker is held until the supervisor has opened its listener. So a client never
meets a closed port, nor an empty list of brokers (where only clients can log in, the first response names
all).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from weir.proxy.addresses import Address, AddressBook, AdvertisedListeners
from weir.proxy.workers.messages import BrokerFound

TOLD_AGAIN_MS: Final = 1000
"""Time (ms) after which a worker reports an unconfirmed broker to the supervisor again. The time doubles with
each message.
"""
TOLD_AGAIN_MS_MAX: Final = 32_000
FORGOTTEN_MS: Final = 60_000
"""Time (ms) for which an unconfirmed broker is kept after the latest response that has named it. Longer than
`TOLD_AGAIN_MS_MAX`, so that the doubled time stays in force.
"""
HOLD_MS: Final = 2
"""Time (ms) after which a held response is looked at again: the supervisor answers in 1 to 3 ms."""
HELD_MS_MAX: Final = 250
"""Time (ms) for which responses are held at most; then they leave the broker out."""
FOUND_MAX: Final = 1000
"""Maximum number of brokers without confirmation that are kept: a broker could tell any number of ids."""


@dataclass(slots=True)
class _UnconfirmedBroker:
    """A broker that the supervisor has not confirmed."""

    address: Address
    again_ms: int
    """Time (ms) from which on the worker may report again."""
    seen_ms: int
    """Time (ms) of the latest response that has named the broker."""
    told_ms: int
    """Time (ms) of the first report to the supervisor."""
    interval_ms: int = TOLD_AGAIN_MS
    """Time (ms) between the latest message to the supervisor and the next one."""
    awaited: bool = False
    """True if the next response that names the broker is to tell it: responses cached before are stale."""


class ToldAddresses(AddressBook):
    """The brokers that the supervisor has told. A broker that only a response has named is left out of
    responses until the supervisor tells it: before that, it may have no listener.
    """

    def __init__(
        self, listeners: AdvertisedListeners, post: Callable[[BrokerFound], None], now_ms: Callable[[], int]
    ) -> None:
        """Begin without brokers. `post` sends a message to the supervisor."""
        super().__init__(listeners, lambda _node_id, _port: None)
        self._post = post
        self._now_ms = now_ms
        self._found: dict[int, _UnconfirmedBroker] = {}
        """Brokers that the supervisor was told of, by node id."""

    def observe(self, node_id: int, upstream: Address) -> int | None:
        """Tell the supervisor of a new broker, or of another address. Return the broker's port at Weir; None
        if the supervisor has not confirmed the broker.
        """
        known = self.nodes.get(node_id)
        if known != upstream and node_id >= 0:
            self._find(node_id, upstream)
            if known is not None:
                self.learn(node_id, upstream)
        return None if known is None else self.port(node_id)

    def learn(self, node_id: int, upstream: Address) -> None:
        """Record the address of a broker; the supervisor logs it."""
        self._know(node_id, upstream)

    def hold_ms(self) -> int:
        """Return the time (ms) for which to hold a response: the supervisor was told of a broker just now."""
        earliest_ms = self._now_ms() - HELD_MS_MAX
        return HOLD_MS if any(found.told_ms > earliest_ms for found in self._found.values()) else 0

    def take(self, brokers: Mapping[int, Address]) -> None:
        """Use these brokers, which the supervisor has told."""
        self.fit(list(brokers))
        for node_id, address in brokers.items():
            self._found.pop(node_id, None)
            if self.nodes.get(node_id) != address:
                self.learn(node_id, address)

    def try_again(self) -> None:
        """If it is time to tell a broker again, have the next responses that name it do so: responses cached
        before are stale. Forget brokers that no response names any more.
        """
        now_ms = self._now_ms()
        self._found = {
            node_id: found for node_id, found in self._found.items() if now_ms < found.seen_ms + FORGOTTEN_MS
        }
        due = [found for found in self._found.values() if not found.awaited and now_ms >= found.again_ms]
        for found in due:
            found.awaited = True
        if due:
            self.version += 1

    def _find(self, node_id: int, upstream: Address) -> None:
        now_ms, found = self._now_ms(), self._found.get(node_id)
        if found is None or found.address != upstream:
            if found is None and len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[node_id] = _UnconfirmedBroker(upstream, now_ms + TOLD_AGAIN_MS, now_ms, now_ms)
        else:
            found.seen_ms = now_ms
            if now_ms < found.again_ms:
                return
            found.interval_ms = min(2 * found.interval_ms, TOLD_AGAIN_MS_MAX)
            found.again_ms, found.awaited = now_ms + found.interval_ms, False
        self._post(BrokerFound(node_id, *upstream))
