"""Build and start the admin endpoint."""

from __future__ import annotations

import structlog
import trio

from proxy.addresses import Address
from proxy.admin.endpoint import Endpoint, application, listen
from proxy.admin.metrics import Sources
from proxy.admin.readiness import Readiness

__all__ = ["Sources", "start"]

log = structlog.get_logger("weir.admin")


async def start(nursery: trio.Nursery, address: Address, sources: Sources, listening: trio.Event) -> None:
    """Serve in the nursery until it is cancelled; `listening` is set once clients can connect. Raises
    ConfigError.
    """
    server = sources.server
    sockets = await listen(address, server.config.settings.connect_timeout_s)
    endpoint = Endpoint(sockets, application(sources, Readiness(server, listening)))
    nursery.start_soon(endpoint.serve, server.supervisor)

    async def say() -> None:
        """Log only after a successful start: a failed one has one line, its error."""
        await listening.wait()
        log.info("admin endpoint listening", address=str(address))

    nursery.start_soon(say)
