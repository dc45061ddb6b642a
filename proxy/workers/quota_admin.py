"""Quota administration of a worker: the supervisor makes the alterations."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog
import trio

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.stores.quota_admins import QuotaAdmins
from weir.proxy.control.stores.store import StoreHealth
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.proxy.workers.link import Link
from weir.proxy.workers.messages import Alter, Altered, AlteredAtBroker, Denied
from weir.proxy.workers.supervisor_questions import SupervisorQuestions, call_back

log = structlog.get_logger("weir")

T = TypeVar("T")


class ForwardingQuotaAdmin:
    """A `QuotaAdmin` that forwards alterations to the supervisor."""

    def __init__(
        self, link: Link, registry: QuotaRegistry, admins: frozenset[str], first_number: int = 0
    ) -> None:
        """Begin without alterations. `admins` are the names of the principals that may describe and alter.
        Alterations have numbers from `first_number` on, which no other process has.
        """
        self._link = link
        self.table = registry.table
        """The stored quotas, as the supervisor has told them last."""
        self._state = StoreHealth(time.time)
        self._admins = QuotaAdmins(admins, self._state)
        self._told_denied = 0
        """Number of denied requests that the supervisor knows."""
        self._questions: SupervisorQuestions[str | None] = SupervisorQuestions(first_number)
        self._token = trio.lowlevel.current_trio_token()
        self._computing = trio.CapacityLimiter(1)
        self.nursery: trio.Nursery | None = None
        """Nursery for computations. Set it before the first connection."""

    def rejection(self, user: str, peer: str) -> str | None:
        """Return the reason why this principal may not describe and alter quotas; None if it may. Count and
        log a rejection.
        """
        return self._admins.rejection(user, peer)

    def tell_denied(self) -> None:
        """Tell the supervisor the number of further denied requests."""
        count = self._state.denied - self._told_denied
        if count:
            self._told_denied += count
            self._link.post(Denied(count))

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        """Have the supervisor store the changes. `done` is then called with None, or the error's text."""
        self._forward(dict(changes), who, peer, done, replication=False)

    def alter_replication(
        self, changes: ReplicationChanges, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        """Have the supervisor store changes of replication throttles, like `alter`."""
        self._forward(dict(changes), who, peer, done, replication=True)

    def _forward(
        self, changes: object, who: str, peer: str, done: Callable[[str | None], None], *, replication: bool
    ) -> None:
        number = self._questions.begin(done)
        self._link.post(Alter(number, pickle.dumps(changes), replication, who, peer))

    def stored(self, message: Altered) -> None:
        """Tell the end of an alteration to the connection that waits for it."""
        self._questions.take(message.number, message.error)

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Call `work` in a thread; then call `done` with its result, or with None if `work` raised an
        exception.
        """
        self._token.run_sync_soon(partial(self._start, work, done))

    def _start(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        if self.nursery is not None:
            self.nursery.start_soon(self._compute, work, done)

    async def _compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        result: T | None = None
        try:
            result = await trio.to_thread.run_sync(work, limiter=self._computing)
        except Exception:
            log.exception("internal error while quotas were described")
        call_back(done, result)

    def altered_at_broker(self) -> None:
        """Tell the supervisor that a broker has answered an alteration that this process has forwarded."""
        self._link.post(AlteredAtBroker())
