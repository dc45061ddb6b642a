"""Workers that are tasks of the supervisor's process, on the same reactor: for `weir capture`, whose files
one process writes, and for tests.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import trio

from weir.proxy.net.reactor import Reactor
from weir.proxy.workers.link import LinkError
from weir.proxy.workers.worker import Worker, begin

KILLED = -9
"""Exit code of a worker that was ended, as that of a process killed by SIGKILL."""


class LocalWorkers:
    """Starts workers within a nursery: call it as a `handle.Spawn`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        reactor: Reactor,
        prepare: Callable[[Worker], None] = lambda _worker: None,
    ) -> None:
        """Begin without workers. `prepare` gets each one before it serves clients."""
        self.started: list[Worker] = []
        """All workers so far."""
        self._nursery = nursery
        self._reactor = reactor
        self._prepare = prepare

    def __call__(self, theirs: socket.socket) -> LocalProcess:
        """Start a worker with its end of the link, which the caller closes."""
        process = LocalProcess()
        self._nursery.start_soon(self._run, theirs.dup(), process)
        return process

    async def _run(self, sock: socket.socket, process: LocalProcess) -> None:
        try:
            with process.scope:
                worker = await begin(sock, self._reactor)
                self._prepare(worker)
                self.started.append(worker)
                await worker.run()
        except* LinkError:
            pass  # the supervisor has ended the link
        finally:
            sock.close()
            process.ended.set()


class LocalProcess:
    """One worker, as a `handle.Process`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    def kill(self) -> None:
        """End the worker and all its connections."""
        self.scope.cancel()

    async def wait(self) -> int:
        """Wait for the worker's end; return the exit code."""
        await self.ended.wait()
        return KILLED
