"""The counts of all clients of one broker, and how many clients are remembered.

Names are as clients give them, so their number is bounded: those without room share one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from proxy.connection.receipts import ClientUsage, Receipt, Slate, Traced
from quotas.remembered import OTHERS, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usage.records import TraceRecord, UsageRecord

_HASHES: Final = 2**32


class UsageBook:
    """What the clients of one broker have used since it was drained last."""

    __slots__ = (
        "_clients",
        "_clients_max",
        "_shared",
        "_trace_hash_max",
        "broker",
        "slate",
    )

    def __init__(self, broker: int, clients_max: int, trace_share: float, traces_max: int) -> None:
        self.broker = broker
        self._clients_max = clients_max
        self._trace_hash_max = int(trace_share * _HASHES)
        self.slate = Slate(traces_max)
        self._clients: dict[tuple[str, str], ClientUsage] = {}
        self._shared = ClientUsage(OTHERS, OTHERS, traced=False)
        """Of all for whom there is no room."""

    def __len__(self) -> int:
        """How many clients are known."""
        return len(self._clients)

    def client(self, user: str, client_id: str) -> ClientUsage:
        """The counts of a client, to be given back with `leave`."""
        key = shortened(user), shortened(client_id)
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= self._clients_max:
                return self._shared
            client = self._clients[key] = ClientUsage(*key, traced=self._is_sampled(key))
        client.held += 1
        return client

    def leave(self, client: ClientUsage) -> None:
        """A session counts for it no longer."""
        if client is not self._shared:
            client.held -= 1
            self._forget(client)

    def _forget(self, client: ClientUsage) -> None:
        if not client.held and not client.active:
            key = client.user, client.client_id
            if self._clients.get(key) is client:  # else its last response came after it was forgotten
                del self._clients[key]

    def _is_sampled(self, key: tuple[str, str]) -> bool:
        """By the names alone: at every broker and every Weir the same clients."""
        return crc32("\0".join(key).encode("utf-8", "surrogatepass")) < self._trace_hash_max

    def receipt(self, client: ClientUsage, group: int) -> Receipt:
        """The counts of a client's requests of one group."""
        receipt = client.receipts[group]
        if receipt is None:
            receipt = client.receipts[group] = Receipt(self.slate, client, group)
        return receipt

    def drain(self, time_ms: int, interval_ms: int, instance: str) -> Iterator[UsageRecord]:
        """See `UsageBooks.drain`."""
        slate = self.slate
        slate.interval += 1
        active, slate.active = slate.active, []
        for receipt in active:
            yield receipt.take(self.broker, time_ms, interval_ms, instance)
            if receipt.client is not self._shared:
                self._forget(receipt.client)

    def take_traces(self, offset_ms: int, instance: str) -> Iterator[TraceRecord]:
        """See `UsageBooks.take_traces`."""
        over: list[Traced] = []
        under_way: list[Traced] = []
        for traced in self.slate.traces:
            (over if traced.is_over else under_way).append(traced)
        self.slate.traces = under_way
        for traced in over:
            yield traced.trace(self.broker, offset_ms, instance)
