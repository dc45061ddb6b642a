"""Acceptor: takes clients from the kernel's queues, as fast as the limits of connections allow."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import structlog
import trio

from weir.proxy.addresses import Address
from weir.proxy.control.supervisor import Supervisor, Task, Works
from weir.proxy.net import sockets
from weir.proxy.outage import Outage
from weir.proxy.server.connection_limiter import ConnectionLimiter
from weir.proxy.server.target import Target

log = structlog.get_logger("weir")

OVERLOAD: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Values of errno of accept() when descriptors or memory have run out. Weir then pauses until connections may
have ended.
"""
OVERLOAD_PAUSE_S: Final = 0.1
QUIET_S: Final = 5.0
"""Time (s) after the latest overload from which an accepted connection shows that the overload is over."""
RETRY_S: Final = 1.0
"""Time (s) after which Weir tries again to open a port that another process has taken."""
TURN_S: Final = 0.002
"""Time (s), for each connection that a process has more than others, for which it lets those accept a new
client first. So connections are spread evenly, also few ones; the kernel wakes all processes, and the fastest
one accepts. Of 8 connections two processes got 4 and 4, or 5 and 3; without this time 0 and 8.
"""
TURNS_MAX: Final = 5
"""Maximum number of connections that count for that time: clients wait no longer if the others have stopped.
"""
NEXT_S: Final = 0.0005
"""Time (s) after accepting a client for which a process lets others accept the next one. The kernel wakes
them meanwhile, so that clients that connect at the same time are spread, too.
"""
REFUSED_LOOK_S: Final = 0.2
"""Time (s) between two looks at a listener that another process has had refuse connections."""
REFUSED_S_MAX: Final = 5.0
"""Time (s) after which this process has such a listener accept again, because the other one may have ended.
If the broker is still away, one more client is accepted and closed.
"""

Receive: TypeAlias = Callable[[socket.socket, Target, Address], Awaitable[None]]
"""Coroutine function (client's socket, target of the listener, client's address) that takes over the socket.
"""


class Acceptor:
    """Accepts the clients of listening sockets, which other processes may share."""

    def __init__(self, limiter: ConnectionLimiter, supervisor: Supervisor) -> None:
        self._limiter = limiter
        self._supervisor = supervisor
        self._token: trio.lowlevel.TrioToken | None = None
        """Trio's token while clients are accepted."""
        self._overload = Outage(
            log,
            "cannot accept connections: raise the limit of open files (ulimit -n)",
            "connections are accepted again",
            quiet_s=QUIET_S,
        )
        self._sockets: dict[Target, list[socket.socket]] = {}
        """Sockets of each listener."""
        self._refusing: dict[Target, trio.Event] = {}
        """Events of the listeners that refuse connections, set when they accept connections again."""
        self._may_accept = trio.Event()
        self._may_accept.set()
        self._taken, self._to_accept = trio.open_memory_channel[tuple[list[socket.socket], Target]](math.inf)

    def take(self, target: Target, listening: Sequence[socket.socket]) -> None:
        """Accept the clients of these listening sockets; they are for `target`. May be called within a turn
        of the reactor.
        """
        self._sockets[target] = list(listening)
        put = partial(self._taken.send_nowait, (self._sockets[target], target))
        if self._token is None:
            put()
        else:
            self._token.run_sync_soon(put)

    def accept(self, *, on: bool) -> None:
        """Accept connections, or none: they wait in the kernel's queues then. It begins with accepting."""
        if on:
            self._may_accept.set()
        else:
            self._may_accept = trio.Event()

    async def refuse(self, target: Target, until: Callable[[], Awaitable[None]]) -> None:
        """Have the kernel refuse connections to a listener until the coroutine function `until` returns. The
        port stays taken meanwhile.

        On Linux, a listening socket that is shut down refuses connections until `listen` is called again, in
        all processes that share the socket.
        """
        self._refusing[target] = trio.Event()
        for sock in self._sockets[target]:
            with suppress(OSError):  # another process that shares it was faster
                sock.shutdown(socket.SHUT_RDWR)
        try:
            await until()
            await self._listen_again(target)
        finally:
            self._refusing.pop(target).set()

    async def accept_forever(self, receive: Receive) -> None:
        """Pass every client of every listener to `receive`, each in a task of its own. Close the sockets at
        the end.
        """
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with trio.open_nursery() as nursery:
                async for listening, target in self._to_accept:
                    for sock in listening:
                        accept = partial(self._accept, sock, target, receive, nursery)
                        nursery.start_soon(self._supervisor.keep_running, Task.ACCEPT, accept)
        finally:
            self.close()

    def close(self) -> None:
        """Close every listening socket."""
        for listening in self._sockets.values():
            for sock in listening:
                if sock.fileno() >= 0:
                    trio.lowlevel.notify_closing(sock)
            sockets.close_all(listening)

    async def _listen_again(self, target: Target) -> None:
        """Have the kernel accept connections to a listener that refuses them. If another process has taken
        the port meanwhile, try again every `RETRY_S`.
        """
        outage = Outage(log, "cannot listen again, retrying", "listening again", clock=trio.current_time)
        while True:
            try:
                sockets.listen_again(self._sockets[target])
            except OSError as error:
                outage.failed(**target.log_fields, error=str(error))
                await trio.sleep(RETRY_S)
            else:
                outage.over(**target.log_fields)
                return

    async def _accept(
        self,
        listening: socket.socket,
        target: Target,
        receive: Receive,
        nursery: trio.Nursery,
        works: Works,
    ) -> None:
        while True:
            if not self._may_accept.is_set():
                await self._may_accept.wait()
            try:
                client, peer = listening.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(listening)
                if ahead := self._limiter.ahead:
                    await trio.sleep(TURN_S * min(ahead, TURNS_MAX))
            except OSError as error:
                if error.errno == errno.EINVAL:  # it was shut down
                    await self._wait_until_listening(listening, target)
                else:
                    await self._failed(error)
            else:
                self._overload.over()
                await self._delay_above_rate(client, target)
                address = Address(sockets.unmapped(peer[0]), peer[1])
                nursery.start_soon(receive, client, target, address)
                works()
                if self._limiter.has_others:
                    await trio.sleep(NEXT_S)

    async def _delay_above_rate(self, client: socket.socket, target: Target) -> None:
        """Wait before serving a connection that exceeds its listener's rate. Later connections wait in the
        kernel meanwhile. Replication listeners have no rate.
        """
        if target.is_replication:
            return
        try:
            await trio.sleep(self._limiter.delay_s(target.node_id))
        except BaseException:
            client.close()
            raise

    async def _wait_until_listening(self, listening: socket.socket, target: Target) -> None:
        """Wait while a listener refuses connections, because of this process or of another one."""
        if target in self._refusing:
            await self._refusing[target].wait()
            return
        with trio.move_on_after(REFUSED_S_MAX):
            while not _listens(listening):  # noqa: ASYNC110  # the kernel has no event for it
                await trio.sleep(REFUSED_LOOK_S)
            return
        await self._listen_again(target)

    async def _failed(self, error: OSError) -> None:
        if error.errno not in OVERLOAD:  # the client has gone
            await trio.lowlevel.checkpoint()
            return
        self._overload.failed(error=str(error))
        await trio.sleep(OVERLOAD_PAUSE_S)


def _listens(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
