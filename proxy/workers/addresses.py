"""The brokers that a worker names to clients: those for which the supervisor has a listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from weir.proxy.addresses import Address, AddressBook, AdvertisedListeners
from weir.proxy.workers.messages import Found

TOLD_AGAIN_MS: Final = 1000
"""Time (ms) after which the supervisor is told again of a broker that it has not confirmed."""
FOUND_MAX: Final = 1000
"""Maximum number of brokers without confirmation that are kept: a broker could tell any number of ids."""


class ToldAddresses(AddressBook):
    """The brokers that the supervisor has told. A broker that only a response has named is left out of
    responses until the supervisor tells it: before that, it may have no listener.
    """

    def __init__(
        self, listeners: AdvertisedListeners, post: Callable[[Found], None], now_ms: Callable[[], int]
    ) -> None:
        """Begin without brokers. `post` sends a message to the supervisor."""
        super().__init__(listeners, lambda _node_id, _port: None)
        self._post = post
        self._now_ms = now_ms
        self._found: dict[int, tuple[Address, int]] = {}
        """Address of each broker that the supervisor was told of, and the time (ms) of that."""

    def observe(self, node_id: int, upstream: Address) -> int | None:
        """Tell the supervisor of a new broker, or of another address. Return the broker's port at Weir; None
        if the supervisor has not confirmed the broker.
        """
        known = self.nodes.get(node_id)
        if known != upstream and node_id >= 0:
            self._find(node_id, upstream)
        return None if known is None else super().observe(node_id, upstream)

    def take(self, brokers: Mapping[int, Address]) -> None:
        """Use these brokers, which the supervisor has told."""
        self.fit(list(brokers))
        for node_id, address in brokers.items():
            self._found.pop(node_id, None)
            if self.nodes.get(node_id) != address:
                self.learn(node_id, address)

    def try_again(self) -> None:
        """If brokers wait for confirmation, have the next responses that name them tell them again: responses
        cached before are stale.
        """
        if self._found:
            self.version += 1

    def _find(self, node_id: int, upstream: Address) -> None:
        told = self._found.get(node_id)
        if told is not None and told[0] == upstream and self._now_ms() < told[1] + TOLD_AGAIN_MS:
            return
        if told is None and len(self._found) >= FOUND_MAX:
            self._found.clear()
        self._found[node_id] = upstream, self._now_ms()
        self._post(Found(node_id, *upstream))
