"""FormerUsage: units that clients used before a worker's process began to serve their broker.

The supervisor knows them, and sends them before the first client. 100,000 limiters take 0.2 s of CPU, so the
work is done in steps between which other tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

import trio

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.workers import charges
from weir.proxy.workers.handle import Handle
from weir.proxy.workers.messages import Charges
from weir.quotas import handover
from weir.quotas.handover import AnyQuotas, QuotasName


class FormerUsage:
    """Sends workers the usage of their brokers, and of quotas that brokers share."""

    def __init__(self, registry: QuotaRegistry, clock_ms: Callable[[], int]) -> None:
        """Begin with the supervisor's registry and clock (ms)."""
        self._registry = registry
        self._clock_ms = clock_ms
        self._posting: dict[int | None, trio.Event] = {}
        """Events of the brokers whose usage is being sent, set at the end."""

    def at_brokers(self, brokers: Collection[int | None]) -> Iterator[Charges | None]:
        """Yield the units used at these brokers; None after each step of about a millisecond."""
        named = self._registry.named()
        return self._messages(
            [each for each in named if not charges.is_shared(each[0]) and each[0][0] in brokers]
        )

    def shared(self) -> Iterator[Charges]:
        """Yield the units used of quotas that brokers share."""
        named = self._registry.named()
        return filter(None, self._messages([each for each in named if charges.is_shared(each[0])]))

    async def post(self, node_id: int | None, handle: Handle) -> None:
        """Send a worker the units used at this broker. Stop if its process ends: the next process gets the
        units of all its brokers at its start.
        """
        posted = self._posting[node_id] = trio.Event()
        restarts = handle.restarts
        try:
            for message in self.at_brokers([node_id]) if handle.alive else ():
                if message is None:
                    await trio.lowlevel.checkpoint()
                if handle.restarts != restarts:
                    return
                if message is not None:
                    handle.post(message)
        finally:
            del self._posting[node_id]
            posted.set()

    async def wait_posted(self, node_id: int | None) -> None:
        """Wait until a call of `post` for this broker has ended, if one runs."""
        if node_id in self._posting:
            await self._posting[node_id].wait()

    def _messages(self, chosen: Iterable[tuple[QuotasName, AnyQuotas]]) -> Iterator[Charges | None]:
        found = (handover.used(quotas, of, self._clock_ms()) for of, quotas in chosen)
        some: list[charges.Charge] = []
        for used in chain.from_iterable(found):
            if used is not None:
                some.append(charges.Charge(used))
                continue
            if some:
                yield Charges(some)
                some = []
            yield None
