"""Listeners that refuse connections because a worker cannot reach their broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog
import trio

from weir.proxy.control.supervisor import Task
from weir.proxy.counters import Counters
from weir.proxy.server.listeners import Listeners
from weir.proxy.server.target import Target
from weir.proxy.workers.messages import Away

log = structlog.get_logger("weir")

FAILED: Final = "internal error while a listener refused connections; please report this"


class RefusingListeners:
    """Has brokers' listeners refuse connections while workers ask for that."""

    def __init__(self, listeners: Listeners, counters: Counters) -> None:
        """Begin without a refusal."""
        self._listeners = listeners
        self._counters = counters
        self._back: dict[int, trio.Event] = {}
        """Events of the brokers whose listeners refuse connections, set once they may accept again."""

    def take(self, message: Away, nursery: trio.Nursery) -> None:
        """Obey a worker; refuse in this nursery. A broker without a listener of its own (server names) is
        ignored.
        """
        node_id = message.node_id
        if not message.away:
            self.accept([node_id])
        elif node_id not in self._back and Target(node_id) in self._listeners:
            self._back[node_id] = trio.Event()
            nursery.start_soon(self._refuse, node_id, self._back[node_id])

    def accept(self, node_ids: Iterable[int | None]) -> None:
        """Have these brokers' listeners accept connections again."""
        for node_id in node_ids:
            if node_id in self._back:
                self._back[node_id].set()

    async def _refuse(self, node_id: int, back: trio.Event) -> None:
        """Have a broker's listener refuse connections until `back` is set. Log an exception: it must not end
        the supervisor.
        """
        try:
            await self._listeners.refuse(Target(node_id), back.wait)
        except Exception:
            self._counters.task_failures[Task.WORKERS] += 1
            log.exception(FAILED)
        finally:
            del self._back[node_id]
