"""Bounds of the requests that are answered at a time, so that one more is refused instead of left waiting.

- `RequestLimit` bounds the requests. Pages that need no token take no place: they need no work, so that
  `/healthz` is answered whatever others do. Nor do readers of events, which the hub limits.
- `ShortQueue` bounds the requests that wait until another's list or scrape has been made.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

import trio
from starlette.types import ASGIApp, Receive, Scope, Send

from weir.proxy.admin.access import OPEN
from weir.proxy.admin.api import events
from weir.proxy.admin.problems import ProblemError, problem
from weir.proxy.admin.stream import STREAM, AdminStream

REQUESTS_MAX: Final = 32
"""Maximum number of requests that are answered at a time."""
SLOW_S: Final = 2.0
"""Time (s) without progress after which a client is slow: it loses its place if another client needs it."""
QUEUE_MAX: Final = 8
"""Maximum number of requests that wait for the list or the scrape that is being made."""
_BUSY: Final = "too many requests are being answered: ask again in a second"


class RequestLimit:
    """ASGI application that passes requests on to another one, at most `REQUESTS_MAX` at a time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._taken: dict[AdminStream, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 503."""
        if scope["path"] in OPEN or scope["path"] == events.PATH:
            await self._app(scope, receive, send)
            return
        stream: AdminStream = scope[STREAM]
        if not self._has_room():
            await problem(503, _BUSY)(scope, receive, send)
            return
        self._taken[stream] = None
        stream.has_place = True
        try:
            await self._app(scope, receive, send)
        finally:
            self._taken.pop(stream, None)
            stream.has_place = False

    def _has_room(self) -> bool:
        """Return True if there is a place; take it from a slow client if need be."""
        if len(self._taken) < REQUESTS_MAX:
            return True
        slowest = min(self._taken, key=lambda stream: stream.waits_since_s)
        if trio.current_time() - slowest.waits_since_s < SLOW_S:
            return False
        del self._taken[slowest]
        slowest.close()
        return True


class ShortQueue:
    """Lock for which at most `QUEUE_MAX` requests wait."""

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        """Acquire the lock. Raises ProblemError if too many wait already."""
        if self._lock.statistics().tasks_waiting >= QUEUE_MAX:
            raise ProblemError(503, _BUSY)
        await self._lock.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._lock.release()
