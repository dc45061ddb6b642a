"""Listeners: the kernel accepts connections as soon as a port is open; Trio takes them from there."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

import structlog
import trio

from weir.proxy.addresses import Address
from weir.proxy.control.supervisor import Supervisor, Task, Work, Works
from weir.proxy.net import sockets
from weir.proxy.net.inherited import Inherited
from weir.proxy.net.own_listeners import OwnListeners
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


Receive: TypeAlias = Callable[[socket.socket, Target, Address], Awaitable[None]]
"""Coroutine function (client's socket, target of the listener, client's address) that takes over the socket.
"""
RunSoon: TypeAlias = Callable[[Callable[[], None]], None]


class Listeners:
    """All listening sockets of one server."""

    def __init__(
        self,
        limiter: ConnectionLimiter,
        supervisor: Supervisor,
        run_soon: RunSoon,
        own_listeners: OwnListeners,
        inherited: Inherited | None = None,
    ) -> None:
        """Begin without listeners. `run_soon` is a function that schedules a call in Trio, also from within
        the reactor's turns. `inherited`: sockets to use for the addresses that they are bound to. Record all
        sockets in `own_listeners`.
        """
        self._own_listeners = own_listeners
        self._inherited = inherited or Inherited()
        self._limiter = limiter
        self._supervisor = supervisor
        self._overload = Outage(
            log,
            "cannot accept connections: raise the limit of open files (ulimit -n)",
            "connections are accepted again",
            quiet_s=QUIET_S,
        )
        self._run_soon = run_soon
        self._sockets: dict[Target, list[socket.socket]] = {}
        """Sockets of each listener."""
        self._refusing: dict[Target, trio.Event] = {}
        """Events of the listeners that refuse connections, set when they accept connections again."""
        self._may_accept = trio.Event()
        self.resume()
        self._opened, self._to_accept = trio.open_memory_channel[tuple[list[socket.socket], Target]](math.inf)

    def open(self, ips: Sequence[str], port: int, target: Target) -> None:
        """Open a listener, whose connections go to `target`: the kernel accepts connections at these IP
        addresses from now on. May be called within a turn of the reactor. Raises OSError.
        """
        listening = self._inherited.listen(ips, port)
        self._sockets[target] = listening
        self._own_listeners.add(sock.getsockname()[:2] for sock in listening)
        self._run_soon(lambda: self._opened.send_nowait((listening, target)))

    def __contains__(self, target: Target) -> bool:
        """Return True if a listener of its own has this target. With server names, only BOOTSTRAP has one."""
        return target in self._sockets

    @property
    def all_sockets(self) -> list[socket.socket]:
        """Sockets of all listeners."""
        return list(chain.from_iterable(self._sockets.values()))

    @property
    def refusing(self) -> frozenset[int]:
        """Node ids of the brokers whose listeners refuse connections now; replication listeners excluded."""
        targets = (target for target in self._refusing if not target.is_replication)
        return frozenset(target.node_id for target in targets if target.node_id is not None)

    def pause(self) -> None:
        """Accept no connections until `resume`. Clients wait in the kernel's queues meanwhile."""
        self._may_accept = trio.Event()

    def resume(self) -> None:
        """Accept connections."""
        self._may_accept.set()

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
        """Pass every client of every listener to `receive`, each in a task of its own."""
        async with trio.open_nursery() as nursery:
            async for listening, target in self._to_accept:
                for sock in listening:
                    accept = partial(self._accept, sock, target, receive, nursery)
                    nursery.start_soon(self._keep_accepting, sock, accept)

    def close(self) -> None:
        """Close every listening socket."""
        for listening in self._sockets.values():
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

    async def _keep_accepting(self, listening: socket.socket, accept: Work) -> None:
        try:
            await self._supervisor.keep_running(Task.ACCEPT, accept)
        finally:
            trio.lowlevel.notify_closing(listening)
            listening.close()

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
            except OSError as error:
                if error.errno == errno.EINVAL:  # it was shut down
                    await self._wait_until_listening(target)
                else:
                    await self._failed(error)
            else:
                self._overload.over()
                await self._delay_above_rate(client, target)
                address = Address(sockets.unmapped(peer[0]), peer[1])
                nursery.start_soon(receive, client, target, address)
                works()

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

    async def _wait_until_listening(self, target: Target) -> None:
        """Wait while a listener refuses connections. If this process does not refuse them, another process
        that shared the socket did, and has gone: listen again.
        """
        if target in self._refusing:
            await self._refusing[target].wait()
        else:
            await self._listen_again(target)

    async def _failed(self, error: OSError) -> None:
        if error.errno not in OVERLOAD:  # the client has gone
            await trio.lowlevel.checkpoint()
            return
        self._overload.failed(error=str(error))
        await trio.sleep(OVERLOAD_PAUSE_S)
