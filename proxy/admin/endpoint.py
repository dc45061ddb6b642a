"""HTTP for operators: metrics, health, request time, replication. Starlette's routes on hypercorn's
connections, in Trio.

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
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

import msgspec
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

from weir.proxy.addresses import Address
from weir.proxy.admin import request_time
from weir.proxy.admin.exposition import render
from weir.proxy.admin.metrics import Sources as Sources
from weir.proxy.admin.metrics import families
from weir.proxy.admin.readiness import Readiness
from weir.proxy.admin.replication import status
from weir.proxy.config.config import ConfigError
from weir.proxy.control.supervisor import Supervisor, Task, Works
from weir.proxy.net import sockets

log = structlog.get_logger("weir.admin")
T = TypeVar("T")

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
CONNECTION_S: Final = 30.0
"""Maximum time (s) that a connection may be open. Each connection serves one request."""


async def start(nursery: trio.Nursery, address: Address, sources: Sources, listening: trio.Event) -> None:
    """Open the endpoint and serve it in the nursery until cancelled. `listening` is set by the server once
    clients can connect. Raises ConfigError if the address cannot be used.
    """
    server = sources.server
    sockets = await listen(address, server.config.settings.connect_timeout_s)
    endpoint = Endpoint(sockets, application(sources, Readiness(server, listening)))
    nursery.start_soon(endpoint.serve, server.supervisor)

    async def say() -> None:
        """Log that the endpoint listens. Called after the start has succeeded, so that a failed start logs
        only its error.
        """
        await listening.wait()
        log.info("admin endpoint listening", address=str(address))

    nursery.start_soon(say)


async def listen(address: Address, timeout_s: float) -> list[socket.socket]:
    """Open listening sockets at the address and return them. Raises ConfigError if no socket can be opened in
    time.
    """
    try:
        return sockets.listen(await sockets.ip_addresses(address.host, timeout_s), address.port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot listen on {address}: {reason}: choose another --admin") from None


def application(sources: Sources, readiness: Readiness) -> Starlette:
    """Return the ASGI application that serves all pages of the admin endpoint."""
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

    async def request_times(request: Request) -> Response:
        answer = request_time.report(sources.quota_registry, request.query_params, sources.now_ms())
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def replication(_request: Request) -> Response:
        answer = await _stepwise(status.read(sources.replication, sources.now_ms()))
        return Response(msgspec.json.encode(answer), media_type="application/json")

    pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        request_time.PATH: request_times,
        status.PATH: replication,
    }
    return Starlette(routes=[Route(path, page, methods=["GET"]) for path, page in pages.items()])


async def _stepwise(steps: Generator[None, None, T]) -> T:
    """Return the result of a generator; sockets are served at each of its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


class Endpoint:
    """Serves an ASGI application on listening sockets until cancelled. An error in one connection ends only
    this connection; after an error in accepting connections, accepting is restarted.
    """

    def __init__(self, listening: list[socket.socket], app: Starlette) -> None:
        """Begin with these listening sockets; `serve` closes them at its end."""
        self._listening = listening
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

        async def app(*args: Any) -> None:  # hypercorn's calls of an application
            if self._begin(bounded):
                await self._app(*args)

        try:
            with trio.move_on_after(CONNECTION_S):
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
    is missing, because the endpoint has no TLS.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self.receive_some = stream.receive_some
        self.send_eof = stream.send_eof
        self.aclose = stream.aclose
        self.sending = False
        """True while a response is being sent."""

    async def send_all(self, data: bytes) -> None:
        """Send the data. Raises trio.BrokenResourceError if the connection is broken, or the client takes
        longer than the time limit to receive.
        """
        with trio.move_on_after(SEND_S) as deadline:
            self.sending = True
            await self._stream.send_all(data)
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
    config.read_timeout = IDLE_S
    config.h2_max_concurrent_streams = 4
    config.websocket_max_message_size = 4096  # for websocket requests, which are refused
    return config
