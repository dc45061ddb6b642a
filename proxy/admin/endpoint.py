"""HTTP for operators: metrics, health, the JSON API. Starlette's routes on hypercorn's connections, in Trio.

Hypercorn's own server is not used: it has no limit of connections, an error of one connection ends all, and
it waits without limit for clients that do not read, even when it stops. Here connections are few and short,
fail independently, and have a time limit for sending.

The number of connections is limited, separately for those that have sent a request (`REQUESTS_MAX`) and those
that have not yet (`WAITING_MAX`). If a limit is reached, a new client replaces the oldest slow one, so
/healthz is always served. With only one limit, slow clients that reconnect at once could replace a client
between its connection and its request.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import structlog
import trio
from hypercorn.config import Config as HttpConfig
from hypercorn.logging import Logger
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from weir.proxy.addresses import Address
from weir.proxy.admin.access import CERTIFICATE, Access, Token
from weir.proxy.admin.api import events, resources
from weir.proxy.admin.api.operation import State, state_of
from weir.proxy.admin.exposition import render
from weir.proxy.admin.metrics import Sources as Sources
from weir.proxy.admin.metrics import families
from weir.proxy.admin.page.routes import routes as page_routes
from weir.proxy.admin.problems import HANDLERS
from weir.proxy.admin.readiness import CHECK_S, Readiness
from weir.proxy.config.config import ConfigError
from weir.proxy.control.snapshots import history, traffic
from weir.proxy.control.supervisor import Supervisor, Task, Works, every, in_steps
from weir.proxy.file_watch import LOOK_S
from weir.proxy.net import sockets
from weir.proxy.net.inherited import Inherited

log = structlog.get_logger("weir.admin")

REQUESTS_MAX: Final = 32
"""Maximum number of connections whose requests are being answered."""
WAITING_MAX: Final = 512
"""Maximum number of connections that have not yet sent the complete head of a request. Each uses 20 KB of
memory.
"""
SEND_S: Final = 10.0
"""Maximum time (s) for which a client may take to receive a response."""
IDLE_S: Final = 5
"""Maximum time (s) that a connection may be open before its client has sent a complete request."""
HTTP_VERSIONS: Final = ("1.0", "1.1")
"""Versions of HTTP that are answered. In HTTP/2 a client's window could hold back a response, whose sending
would then have no time limit, and one connection could send many requests.
"""
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
    endpoint = Endpoint(opened, Access(application(state), rules, token), context)

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


def _start_looking(nursery: trio.Nursery, state: State, token: Token | None) -> None:
    """Start the tasks that record the history, and that read changed files."""
    keep_running, now_ms = state.server.supervisor.keep_running, state.sources.now_ms
    note_rates = every(history.PERIOD_S, lambda: in_steps(state.history.look(now_ms())))
    nursery.start_soon(keep_running, Task.SNAPSHOTS, note_rates)
    note_bytes = every(traffic.PERIOD_S, lambda: in_steps(state.traffic.look(now_ms())))
    nursery.start_soon(keep_running, Task.SNAPSHOTS, note_bytes)
    nursery.start_soon(keep_running, Task.ADMIN, every(CHECK_S, state.readiness.refresh))
    tls = state.server.config.admin_access.tls
    if tls is not None:
        nursery.start_soon(keep_running, Task.TLS_FILES, every(LOOK_S, tls.look))
    if token is not None:
        state.server.conditions.sources.append(token.conditions)
        nursery.start_soon(keep_running, Task.ADMIN, every(LOOK_S, token.look))


def application(state: State) -> Starlette:
    """Return the ASGI application that serves all pages of the admin endpoint, without a check of access."""
    sources, readiness = state.sources, state.readiness
    scraping = trio.Lock()

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
    return app


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
        self._app = wrap_app(app, 0, "asgi")  # type: ignore[arg-type]  # ASGI's scopes, as each library types them
        self._config = _http_config()
        self._waiting: dict[_Stream, None] = {}
        """Connections without a request, the oldest first."""
        self._asked: dict[_Stream, None] = {}
        """Connections whose requests are being answered, the oldest first."""

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
                for stream in (*self._waiting, *self._asked):
                    stream.close()

    async def _connection(self, stream: trio.SocketStream) -> None:
        bounded = _Stream(stream)
        self._waiting[bounded] = None
        if len(self._waiting) > WAITING_MAX:
            _close_first(self._waiting)

        async def app(scope: Any, *args: Any) -> None:  # hypercorn's calls of an application
            if scope.get("http_version") not in HTTP_VERSIONS:
                bounded.close()
            elif self._begin(bounded):
                scope[CERTIFICATE], scope[events.KEEP_OPEN] = bounded.has_certificate, keep_open
                await self._app(scope, *args)

        def keep_open() -> None:
            self._asked.pop(bounded, None)  # the hub limits the number of its readers
            bounded.keep_open()
            deadline.deadline = math.inf

        try:
            with trio.move_on_after(CONNECTION_S) as deadline:
                if self._context is not None and not await bounded.secure(self._context()):
                    return
                await TCPServer(
                    app,  # type: ignore[arg-type]  # it passes hypercorn's arguments on
                    self._config,
                    WorkerContext(None),
                    ConnectionState({}),
                    bounded,  # type: ignore[arg-type]  # it has what is used of a stream
                )
        except Exception as error:  # a bug in parsing HTTP must affect only its connection
            log.error("internal error, the admin connection is closed; please report this", exc_info=error)
        finally:
            self._waiting.pop(bounded, None)
            self._asked.pop(bounded, None)
            bounded.close()

    def _begin(self, stream: _Stream) -> bool:
        """Count this connection, whose request has arrived, among those that are answered. If `REQUESTS_MAX`
        are answered already, close the oldest one whose client is slow to receive its response. If no client
        is slow, close this connection instead and return False.
        """
        self._waiting.pop(stream, None)
        if len(self._asked) >= REQUESTS_MAX:
            sending = {other: None for other in self._asked if other.sending}
            if not sending:
                stream.close()
                return False
            del self._asked[_close_first(sending)]
        self._asked[stream] = None
        return True


class _Stream:
    """A socket with the methods that hypercorn calls, and a time limit for sending. The method `do_handshake`
    is missing: `secure` does the handshake, so that it belongs to the connections without a request.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self._secured: trio.SSLStream[trio.SocketStream] | None = None
        self.sending = False
        """True while a response is being sent."""
        self._patience = trio.CancelScope()
        """Deadline of the read in progress."""
        self._read_s: float = IDLE_S
        self.has_certificate = False
        """True if the client has shown a certificate that the TLS context trusts."""

    async def secure(self, context: ssl.SSLContext) -> bool:
        """Do the TLS handshake; return False if it fails, or takes too long."""
        secured = trio.SSLStream(self._stream, context, server_side=True, https_compatible=True)
        try:
            with trio.fail_after(IDLE_S):
                await secured.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            return False
        self._secured, self.has_certificate = secured, bool(secured.getpeercert())
        return True

    async def receive_some(self, max_bytes: int) -> bytes:
        """Receive up to this number of bytes, none at the end; wait for at most `IDLE_S`, or without limit
        after `keep_open`. Raises trio.TooSlowError.
        """
        with trio.fail_after(self._read_s) as self._patience:
            received: bytes | bytearray = await (self._secured or self._stream).receive_some(max_bytes)
            return bytes(received)
        raise AssertionError("unreachable: fail_after raises TooSlowError")

    def keep_open(self) -> None:
        """Have a client that sends nothing more keep its connection, because its response has no end."""
        self._read_s = self._patience.deadline = math.inf

    async def send_eof(self) -> None:
        """Close the sending half, after which the client still reads the response."""
        if self._secured is None:
            await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the connection."""
        await (self._secured or self._stream).aclose()

    async def send_all(self, data: bytes) -> None:
        """Send the data. Raises trio.BrokenResourceError if the connection is broken, or the client takes
        longer than the time limit to receive.
        """
        with trio.move_on_after(SEND_S) as deadline:
            self.sending = True
            await (self._secured or self._stream).send_all(data)
            self.sending = False
        if deadline.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")

    def close(self) -> None:
        """Close the socket; tasks that use the socket get an error."""
        self.socket.close()


def _close_first(streams: dict[_Stream, None]) -> _Stream:
    """Remove the oldest connection from `streams`, close it, and return it."""
    oldest = next(iter(streams))
    del streams[oldest]
    oldest.close()
    return oldest


class _Log(Logger):
    """Logger for hypercorn that writes only failures, in the format of Weir's log."""

    async def exception(self, message: str, *_args: object, **_kwargs: object) -> None:
        log.exception("internal error in an admin page; please report this", what=message)


def _http_config() -> HttpConfig:
    config = HttpConfig()
    config.errorlog = None
    config.accesslog = None
    config.logger_class = _Log
    config.include_server_header = False
    config.keep_alive_max_requests = 1
    config.keep_alive_timeout = IDLE_S
    config.read_timeout = None  # see `_Stream.receive_some`
    config.h2_max_concurrent_streams = 1  # the first one closes the connection
    config.websocket_max_message_size = 4096  # for websocket requests, which are refused
    return config
