"""HTTP for operators: metrics, health, the JSON API. Starlette's routes on connections of `http`.

The number of connections is limited (`CONNECTIONS_MAX`), and separately the number of requests that are
answered (`places`). At the limit of connections a new one replaces the oldest one without a place, so
/healthz is always served. With only one limit, slow clients that reconnect at once could replace a client
between its connection and its request.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from weir.proxy.addresses import Address
from weir.proxy.admin.access import AccessControl, Token, token_refused
from weir.proxy.admin.api import events, resources
from weir.proxy.admin.api.operation import ApiState, state_of
from weir.proxy.admin.exposition import render
from weir.proxy.admin.http import HttpExchange
from weir.proxy.admin.metrics import Sources as Sources
from weir.proxy.admin.metrics import families
from weir.proxy.admin.page.routes import routes as page_routes
from weir.proxy.admin.places import RequestLimit, ShortQueue
from weir.proxy.admin.problems import HANDLERS
from weir.proxy.admin.readiness import CHECK_S, Readiness
from weir.proxy.admin.refusals import Refusals
from weir.proxy.admin.stream import STREAM, AdminStream
from weir.proxy.config.config import ConfigError
from weir.proxy.control.snapshots import history, traffic
from weir.proxy.control.supervisor import Supervisor, Task, Works, every, in_steps
from weir.proxy.file_watch import LOOK_S
from weir.proxy.net import sockets
from weir.proxy.net.inherited import Inherited

log = structlog.get_logger("weir.admin")

CONNECTIONS_MAX: Final = 512
"""Maximum number of connections. Each uses 20 KB of memory."""
CONNECTION_S: Final = 30.0
"""Maximum time (s) that a connection may be open. Each connection serves one request."""


def prepare(
    address: Address, opened: list[socket.socket], sources: Sources, listening: trio.Event
) -> Callable[[trio.Nursery], None]:
    """Return a function that serves the endpoint in a nursery until cancelled, at sockets that `listen` has
    opened. `listening` is set by the server once clients can connect. Raises ConfigError if the token or the
    certificate cannot be used.
    """
    server, rules = sources.server, sources.server.config.admin_access
    token = None if rules.token_file is None else Token(rules.token_file)
    tls = rules.tls
    if tls is not None:
        tls.load()
    state = state_of(sources, Readiness(server, listening))
    context = None if tls is None else lambda: tls.context
    refusals = Refusals(sources.refused, server.rate_limited_log.note)
    app = AccessControl(application(state), rules, token, refusals)
    endpoint = Endpoint(opened, app, context)

    async def say() -> None:
        """Log that the endpoint listens. Called after the start has succeeded, so that a failed start logs
        only its error.
        """
        await listening.wait()
        log.info("admin endpoint listening", address=str(address))

    def start(nursery: trio.Nursery) -> None:
        nursery.start_soon(endpoint.serve, server.supervisor)
        _start_looking(nursery, state, token)
        nursery.start_soon(say)

    return start


async def listen(
    address: Address, timeout_s: float, inherited: Inherited | None = None
) -> list[socket.socket]:
    """Open listening sockets at the address, or take `inherited` ones, and return them. Raises ConfigError if
    no socket can be opened in time.
    """
    try:
        return (inherited or Inherited()).listen(
            await sockets.ip_addresses(address.host, timeout_s), address.port
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot listen on {address}: {reason}: choose another --admin") from None


def _start_looking(nursery: trio.Nursery, state: ApiState, token: Token | None) -> None:
    """Start the tasks that record the history, and that read changed files."""
    keep_running, now_ms = state.server.supervisor.keep_running, state.sources.now_ms
    note_rates = every(history.PERIOD_S, lambda: in_steps(state.history.look(now_ms())))
    nursery.start_soon(keep_running, Task.SNAPSHOTS, note_rates)

    async def note_bytes() -> None:
        state.traffic.look(now_ms())

    nursery.start_soon(keep_running, Task.SNAPSHOTS, every(traffic.PERIOD_S, note_bytes))
    nursery.start_soon(keep_running, Task.ADMIN, every(CHECK_S, state.readiness.refresh))
    tls = state.server.config.admin_access.tls
    if tls is not None:
        nursery.start_soon(keep_running, Task.TLS_FILES, every(LOOK_S, tls.look))
    if token is not None:
        state.server.health.watch(token.outage, token_refused)
        nursery.start_soon(keep_running, Task.ADMIN, every(LOOK_S, token.look))


def application(state: ApiState) -> ASGIApp:
    """Return the ASGI application that serves all pages of the admin endpoint, without a check of access."""
    sources, readiness = state.sources, state.readiness
    scraping = ShortQueue()

    async def metrics(request: Request) -> Response:
        ready = await readiness.problem() is None
        async with scraping:
            text, content_type = await render(
                families(sources, ready=ready), request.headers.get("accept", "")
            )
        return Response(text, headers={"content-type": content_type})

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        problem = await readiness.problem()
        if problem is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"not ready: {problem}\n", status_code=503)

    pages = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    routes = [Route(path, page, methods=["GET"]) for path, page in pages.items()]
    streams = [events.route(state.sources.server.events)]
    every_route = [*routes, *streams, *page_routes(), *resources.routes(state)]
    app = Starlette(routes=every_route, exception_handlers=HANDLERS)
    app.router.redirect_slashes = False
    return RequestLimit(app)


class Endpoint:
    """Serves an ASGI application on listening sockets until cancelled. An error in one connection ends only
    this connection; after an error in accepting connections, accepting is restarted.
    """

    def __init__(
        self,
        listening: list[socket.socket],
        app: ASGIApp,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Begin with these listening sockets; `serve` closes them at its end. `context` returns the TLS
        context of the next connection; None for plain HTTP.
        """
        self._listening = listening
        self._context = context
        self._app = app
        self._open: dict[AdminStream, None] = {}
        """Connections, the oldest first."""

    async def serve(self, supervisor: Supervisor) -> None:
        """Accept connections until cancelled, then close all of them."""
        logging.getLogger("trio.serve_listeners").setLevel(logging.CRITICAL)  # the server logs the same
        try:
            await supervisor.keep_running(Task.ADMIN, self._serve)
        finally:
            sockets.close_all(self._listening)

    async def _serve(self, _works: Works) -> None:
        copies = [trio.socket.from_stdlib_socket(sock.dup()) for sock in self._listening]
        listeners = list(map(trio.SocketListener, copies))
        async with trio.open_nursery() as connections:
            try:
                await trio.serve_listeners(self._connection, listeners, handler_nursery=connections)
            finally:
                for copy in copies:
                    copy.close()

    async def _connection(self, stream: trio.SocketStream) -> None:
        connection = AdminStream(stream)
        self._make_room()
        self._open[connection] = None
        connection.lifetime.deadline = trio.current_time() + CONNECTION_S
        try:
            with connection.lifetime:
                if self._context is None or await connection.secure(self._context()):
                    await HttpExchange(connection).run(self._app, _keys(connection))
        except Exception as error:  # a bug in parsing HTTP must affect only its connection
            log.error("internal error, the admin connection is closed; please report this", exc_info=error)
        finally:
            self._open.pop(connection, None)
            connection.close()

    def _make_room(self) -> None:
        """Close the oldest connection without a place, if there are too many."""
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next((each for each in self._open if not each.has_place), None)
            if oldest is not None:
                del self._open[oldest]
                oldest.close()


def _keys(connection: AdminStream) -> dict[str, object]:
    """Return the keys of an ASGI scope that Weir adds."""
    return {
        STREAM: connection,
        events.KEEP_OPEN: connection.keep_open,
    }
