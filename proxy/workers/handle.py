"""One worker, as the supervisor sees it: its process, its link, and its number of connections."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import structlog
import trio

from weir.proxy.build import VERSION, installed_version
from weir.proxy.control.supervisor import Works
from weir.proxy.workers.exit_codes import REPLACED
from weir.proxy.workers.life import Life, WorkerEvent, WorkerState
from weir.proxy.workers.link import Link, LinkError
from weir.proxy.workers.messages import ConnectionsChanged, Drain, Drained, Listen, Message, Ready

log = structlog.get_logger("weir")

WORKER: Final = "weir.proxy.workers"
"""Module that a worker's process runs."""
LOOK_S: Final = 0.5
"""Time (s) between two looks at the signs of life."""
WAIT_S_MIN: Final = 0.1
"""Time (s) before the second restart; it doubles with each further restart. The first one comes at once."""
WAIT_S_MAX: Final = 5.0
STEADY_S: Final = 60.0
"""Time (s) that a worker must run so that it is started again at once."""
REPLACED_ON_DISK: Final = (
    "another version of Weir was installed while this one ran, so no worker can start: restart Weir, or "
    "start a new one that takes over"
)

Reason: TypeAlias = Literal["died", "stuck", "failed", "replaced"]
"""Reason why a process has ended. `failed`: the supervisor could not obey one of its messages. `replaced`:
the files on disk are of another version of Weir.
"""


class Process(Protocol):
    """A worker that was started."""

    @property
    def pid(self) -> int:
        """Id of the process."""

    def kill(self) -> None:
        """End it at once."""

    async def wait(self) -> int:
        """Wait for its end; return the exit code."""


Spawn: TypeAlias = Callable[[socket.socket], Process]
"""Function that starts a worker with its end of the link, which the caller closes."""


class PoolFunctions(NamedTuple):
    """The functions by which a handle works with its pool."""

    first: Callable[[], Iterable[Message]]
    """Function that returns the first messages to a new process."""
    state: Callable[[], Iterable[Message | None]]
    """Function that returns the messages to a process that is ready; None after each step of long work."""
    take: Callable[[Message], Awaitable[None]]
    """Coroutine function that obeys a message of the worker."""
    lost: Callable[[Reason, list[str]], None]
    """Function (reason, addresses of the clients that were connected) that notes the end of a process."""
    socks: Callable[[], Iterable[tuple[Listen, Sequence[socket.socket]]]]
    """Function that returns the listeners, whose clients a process that is ready accepts."""
    spawn: Spawn
    begun: trio.Event
    """Set once the listeners are open. Before that, a process gets no message, and nothing is logged."""


class Handle:
    """A worker: the same one after its process was replaced."""

    def __init__(self, number: int, plan: PoolFunctions) -> None:
        self.number = number
        self.pid = 0
        """Id of the present process; 0 for none."""
        self.ready = trio.Event()
        """Set once the first process has been ready."""
        self._plan = plan
        self._link: Link | None = None
        """Link to the present process, once it is ready."""
        self.lost_by: Reason | None = None
        """Reason why the latest process has ended; None since a process is ready."""
        self.open: Counter[str] = Counter()
        """Number of open connections of the process by client's address, without those of replication."""
        self._life = Life()
        self._stopped = trio.Event()
        """Set once no process is to be started any more."""

    @property
    def alive(self) -> bool:
        """True while the process is ready."""
        return self._link is not None

    @property
    def silent_ms(self) -> int:
        """Time (ms) since the latest message of the process, to half a second."""
        return int(self._life.silent_looks * LOOK_S * 1000)

    @property
    def connections(self) -> int:
        """Number of open connections of the process."""
        return self.open.total()

    def change(self, message: ConnectionsChanged) -> None:
        """Count connections that the process has opened and closed."""
        self.open.update(message.opened)
        self.open.subtract(message.closed)
        for host in message.closed:
            if not self.open[host]:
                del self.open[host]

    def post(self, message: Message, socks: Sequence[socket.socket] = ()) -> None:
        """Send a message, unless the process is not ready: it will get the present state at its start."""
        if self._link is not None:
            self._link.post(message, socks)

    def drain(self) -> None:
        """Have the process drain and end; do not replace it any more."""
        self._life.happen(WorkerEvent.DRAIN)
        self._stopped.set()
        self.post(Drain())

    async def run(self, works: Works) -> None:
        """Start the process, and start it again when it ends or is stuck, until cancelled, or until the
        process has drained. Calls `works` when it starts the process.
        """
        wait_s = 0.0
        while self._life.state is not WorkerState.OVER:
            works()
            began_s = trio.current_time()
            try:
                reason, before, after = await self._process()
            except Exception:
                self._lose("failed")
                raise
            if after is WorkerState.OVER:
                if before is not WorkerState.DRAINED:  # its clients were cut off
                    log.error("worker lost while it drained", worker=self.number, reason=reason)
                    self._lose(reason)
                break
            if trio.current_time() - began_s >= STEADY_S:
                wait_s = 0.0
            log.error("worker lost, starting another", worker=self.number, reason=reason, wait_s=wait_s)
            former = self.lost_by
            self._lose(reason)
            if reason == "replaced" != former:
                log.error(
                    REPLACED_ON_DISK, worker=self.number, version=VERSION, installed=installed_version()
                )
            with trio.move_on_after(wait_s):
                await self._stopped.wait()
            wait_s = min(max(2 * wait_s, WAIT_S_MIN), WAIT_S_MAX)

    def _lose(self, reason: Reason) -> None:
        """Note the end of a process and of its clients' connections. Clients that connect meanwhile wait in
        the kernel's queue for another process.
        """
        self.lost_by = reason
        lost, self.open = self.open, Counter()
        self._plan.lost(reason, list(lost.elements()))

    async def _process(self) -> tuple[Reason, WorkerState, WorkerState]:
        """Run one process until it ends; return the reason, and the states before and after."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = self._plan.spawn(theirs)
        link, self.pid = Link(ours), process.pid
        self._life.happen(WorkerEvent.START)
        try:
            await self._plan.begun.wait()
            for message in self._plan.first():
                link.post(message)
            reason = await self._serve(link)
        finally:
            self._link, self.pid = None, 0
            link.close()
            process.kill()
            with trio.CancelScope(shield=True):
                code = await process.wait()
            before = self._life.state
            after = self._life.happen(WorkerEvent.END)
        return ("replaced" if code == REPLACED else reason), before, after

    async def _serve(self, link: Link) -> Reason:
        """Exchange messages until the link breaks ("died"), or no message comes any more ("stuck")."""
        reason: Reason = "died"
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                try:
                    await link.send_forever()
                except LinkError:
                    link.end()  # a process that still runs ends; `receive` reads all that it has sent

            async def receive() -> None:
                with suppress(LinkError):
                    await self._receive(link)
                nursery.cancel_scope.cancel()

            async def watch() -> None:
                nonlocal reason
                is_stuck = False
                while not is_stuck:
                    await trio.sleep(LOOK_S)
                    is_stuck = self._life.look()
                reason = "stuck"
                nursery.cancel_scope.cancel()

            nursery.start_soon(send)
            nursery.start_soon(receive)
            nursery.start_soon(watch)
        return reason

    async def _receive(self, link: Link) -> None:
        while True:
            message, _socks = await link.receive()
            self._life.silent_looks = 0
            if isinstance(message, Ready):
                await self._begin(link)
            elif isinstance(message, Drained):
                self._life.happen(WorkerEvent.DRAINED)
                self._link = None
                link.end()
            else:
                await self._plan.take(message)

    async def _begin(self, link: Link) -> None:
        """Serve with a process that is ready. Other tasks run between the steps of `state`, and not between
        its last message and the first one of `post`.
        """
        for message in self._plan.state():
            if message is None:
                await trio.lowlevel.checkpoint()
            else:
                link.post(message)
        self._life.happen(WorkerEvent.READY)  # now: the steps may have taken longer than a heartbeat may
        self._link, self.lost_by = link, None
        self.ready.set()
        for listen, socks in self._plan.socks():
            link.post(listen, socks)
        log.info("worker started", worker=self.number, pid=self.pid)
        if self._life.state is WorkerState.DRAINING:
            link.post(Drain())


class _Started(NamedTuple):
    """A process of the system."""

    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()

    async def wait(self) -> int:
        return await trio.to_thread.run_sync(self.process.wait)


def spawn_process(theirs: socket.socket) -> Process:
    """Start a worker's process with its end of the link. It finds the modules that this process has found."""
    command = [sys.executable, "-P", "-m", WORKER, str(theirs.fileno()), VERSION]
    paths = os.pathsep.join(path for path in sys.path if path)
    return _Started(
        subprocess.Popen(  # noqa: S603  # our own program
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
    )
