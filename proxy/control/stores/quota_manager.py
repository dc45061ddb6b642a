"""The quota manager: follows the store's quotas, and alters them for admins.

Alterations run one after another. The response to an alteration is sent when the alteration is stored, in
force, and in the audit log. If the store fails, the last known quotas stay in force.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from weir.proxy.control.stores.alterations import (
    Alteration,
    AlterationRequest,
    QuotaAlteration,
    ReplicationAlteration,
    write_audit,
)
from weir.proxy.control.stores.quota_admins import QuotaAdmins
from weir.proxy.control.stores.store import QuotaStore, StoreError, StoreHealth
from weir.proxy.control.stores.table_in_force import TableInForce
from weir.proxy.control.supervisor import Supervisor, Task, Works
from weir.proxy.logs import audit_logger
from weir.quotas import QuotaTable
from weir.quotas.table.times import now_utc

if TYPE_CHECKING:
    from datetime import datetime

    from weir.proxy.control.quota_registry import QuotaRegistry
    from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges

log = structlog.get_logger("weir.quotas")
audit = audit_logger("weir.audit")

WAITING_MAX: Final = 100
"""Maximum number of alterations that may wait."""
INTERNAL: Final = "internal error, Weir's log has more"
T = TypeVar("T")


class QuotaManager:
    """Puts the quotas of a store in force, and alters the stored quotas for admins. All connections of a
    process use one object, through the interface `QuotaAdmin`.
    """

    def __init__(
        self,
        store: QuotaStore,
        quota_registry: QuotaRegistry,
        table: QuotaTable,
        admins: frozenset[str],
        state: StoreHealth,
        supervisor: Supervisor,
        now: Callable[[], datetime] = now_utc,
    ) -> None:
        """Begin with the table of the registry in force, and `table` stored: the quotas that the store had at
        the start. `admins` are the names of the principals that may describe and alter quotas. `now` is the
        wall clock.
        """
        self._store = store
        self._in_force = TableInForce(quota_registry, table, now)
        self._admins = QuotaAdmins(admins, state)
        self._state = state
        self._supervisor = supervisor
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._reading = trio.Lock()
        self._computing = trio.CapacityLimiter(1)
        """Limits computations to one thread at a time: threads share the interpreter, so each further thread
        would take time from the sockets.
        """
        self._reread_asked = False
        self.on_altered_at_broker: list[Callable[[], None]] = []
        """Functions to call when a broker has answered an alteration that Weir has forwarded."""
        self._queue, self._alterations = trio.open_memory_channel[tuple[Alteration, AlterationRequest]](
            WAITING_MAX
        )

    # Called by connections, on Trio's thread but outside of Trio's tasks

    @property
    def table(self) -> QuotaTable:
        """The stored quotas that were last read and put in force; entries that have ended are left out."""
        return self._in_force.table

    def rejection(self, user: str, peer: str) -> str | None:
        """Return the reason why this principal may not describe and alter quotas; None if it may. Count and
        log a rejection.
        """
        return self._admins.rejection(user, peer)

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        """Queue changes of enforced quotas to be stored and put in force. `done` is then called with None for
        success, or with the error's text.
        """
        self.alter_entries(QuotaAlteration(changes), who, peer, done)

    def alter_entries(
        self, alteration: QuotaAlteration, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        """Queue an alteration of enforced or shadow entries, like `alter`."""
        self._soon(partial(self._enqueue, alteration, AlterationRequest(who, peer, done)))

    def alter_replication(
        self, changes: ReplicationChanges, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        """Queue changes of replication throttles, like `alter`."""
        self._soon(partial(self._enqueue, ReplicationAlteration(changes), AlterationRequest(who, peer, done)))

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """Call `work` in a thread; then call `done` with its result, or with None if `work` raised an
        exception.
        """
        self._soon(partial(self._start, work, done))

    def altered_at_broker(self) -> None:
        """Call the functions in `on_altered_at_broker`, and begin to read the store's quotas, because Weir
        has forwarded an alteration to a broker. Calls before the read begins cause no further read.
        """
        for call in self.on_altered_at_broker:
            call()
        if not self._reread_asked:
            self._reread_asked = True
            self._soon(partial(self._start_soon, self._reread))

    # Called by the process

    def add_denied(self, count: int) -> None:
        """Count quota requests that a worker has rejected and logged."""
        self._state.denied += count

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Put the store's quotas in force whenever they change, and make the queued alterations, until
        cancelled.
        """
        self._token = trio.lowlevel.current_trio_token()
        await self._in_force.put()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._supervisor.keep_running, Task.QUOTA_STORE, self._follow)
            nursery.start_soon(self._alter_forever)
            nursery.start_soon(self._supervisor.keep_running, Task.QUOTA_STORE, self._in_force.end_entries)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def renew(self, in_shadow: bool | None = None) -> None:
        """Put the same quotas in force again (`TableInForce.renew`)."""
        await self._in_force.renew(in_shadow)

    async def reload(self) -> bool:
        """Read the store now and put its quotas in force. Return True if the store could be read. Never
        raises.
        """
        try:
            await self._changed(await self._store.load())
            return True
        except StoreError as error:
            self._state.outage.say_next()
            self._failed(error)
        except Exception:
            log.exception("internal error while quotas were read, the last known stay in force")
            self._state.outage.record(INTERNAL)
        return False

    # Following

    async def _follow(self, works: Works) -> None:
        """Put the store's quotas in force whenever they change, until cancelled. If the last read has failed,
        begin with a read.
        """
        if not self._state.last_was_good and await self.reload():
            works()
        try:
            await self._store.follow(self._changed, self._failed)
        except Exception:
            self._state.outage.record(INTERNAL)
            raise

    async def _reread(self) -> None:
        async with self._reading:
            self._reread_asked = False
            await self.reload()

    async def _changed(self, table: QuotaTable) -> None:
        is_new = await self._in_force.put(table)
        quotas = len(self.table)
        if not self._state.succeeded(quotas) and is_new:
            log.info("quotas loaded", store=self._store.name, quotas=quotas)

    def _failed(self, error: StoreError) -> None:
        self._state.outage.failed(store=self._store.name, reason=str(error))

    # Altering

    def _soon(self, call: Callable[[], None]) -> None:
        assert self._token is not None
        self._token.run_sync_soon(call)

    def _enqueue(self, alteration: Alteration, request: AlterationRequest) -> None:
        try:
            self._queue.send_nowait((alteration, request))
        except trio.WouldBlock:
            _tell(request.done, f"{WAITING_MAX} alterations of quotas are waiting already: try again")

    async def _alter_forever(self) -> None:
        async for alteration, request in self._alterations:
            _tell(request.done, await self._alter(alteration, request))

    async def _alter(self, alteration: Alteration, request: AlterationRequest) -> str | None:
        """Store the changes and put them in force; return the error for the client, None for success."""
        try:
            changed = await self._make(alteration, request)
        except StoreError as error:
            return self._not_altered(request, str(error))
        except Exception:
            log.exception("internal error while quotas were altered")
            return self._not_altered(request, INTERNAL)
        self._state.note_alteration("stored" if changed else "unchanged")
        return None

    async def _make(self, alteration: Alteration, request: AlterationRequest) -> bool:
        """Store the changes, put them in force and write the audit log; return True if any value has changed.
        Raises StoreError.
        """
        before = self.table
        await self._in_force.put(await alteration.make(self._store, self._in_force.ended))
        return write_audit(alteration, request, before)

    def _not_altered(self, request: AlterationRequest, reason: str) -> str:
        self._state.note_alteration("failed")
        log.error("quotas not altered", principal=f"User:{request.who}", reason=reason)
        return reason

    # Computing

    def _start(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        self._start_soon(partial(_compute, work, done, self._computing))

    def _start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        if self._nursery is not None:  # else the process is ending, and no connection is left
            self._nursery.start_soon(task)


async def _compute(
    work: Callable[[], T], done: Callable[[T | None], None], turn: trio.CapacityLimiter
) -> None:
    result: T | None = None
    try:
        result = await trio.to_thread.run_sync(work, limiter=turn)
    except Exception:
        log.exception("internal error while quotas were described")
    _tell(done, result)


def _tell(done: Callable[[T], None], result: T) -> None:
    """Call `done` with the result, and log an exception: a bug in one connection must not affect others."""
    try:
        done(result)
    except Exception:
        log.exception("internal error while a quota request was answered")
