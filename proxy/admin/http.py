"""HTTP/1.1 at one connection: h11 parses, an ASGI application answers one request, then the connection ends.

An ASGI server would do more: keep connections, upgrade to HTTP/2 and WebSocket, read ahead of the
application. Each of these let requests occupy a connection, or fill the log. Here a body is read only when
the application asks for it, and every offer of an upgrade is ignored (RFC 9110, 7.8). In HTTP/2 a client's
window could hold back a response without a time limit.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from email.utils import formatdate
from typing import Final
from urllib.parse import unquote

import h11
import structlog
import trio
from starlette.types import ASGIApp, Message, Scope

from weir.proxy.admin.stream import AdminStream

log = structlog.get_logger("weir.admin")

HEAD_BYTES_MAX: Final = 16 * 1024
"""Maximum length (bytes) of the head of a request."""
IDLE_S: Final = 5.0
"""Maximum time (s) in which the head of a request must arrive, and then each part of its body."""
LINGER_S: Final = 1.0
"""Maximum time (s) to discard a body that nobody has read. The kernel would answer its bytes by a reset,
after which the client may lose the response.
"""
RECEIVE_BYTES: Final = 64 * 1024
VERSIONS: Final = (b"1.0", b"1.1")
DISCONNECT: Final[Message] = {"type": "http.disconnect"}
_ENDED: Final = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


class HttpExchange:
    """One request of a client, and its response."""

    def __init__(self, stream: AdminStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._start: Message | None = None
        """Status and headers of the response, until its first part is sent."""
        self._complete = False
        """True if the application has received the whole request."""

    async def run(self, app: ASGIApp, keys: Scope) -> None:
        """Answer a request. `keys` are further keys of its ASGI scope. Return at the end of the response, or
        of the connection.
        """
        try:
            with trio.fail_after(IDLE_S):
                request = await self._head()
            if request is not None:
                await self._answer(app, {**_scope(request, self._stream), **keys})
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
        except _ENDED:
            return
        await self._end()

    async def _head(self) -> h11.Request | None:
        """Return the head of the request; None if the client has sent nothing."""
        event = await self._next()
        if not isinstance(event, h11.Request):
            return None
        if event.http_version not in VERSIONS:
            raise h11.RemoteProtocolError("no such version", error_status_hint=505)
        return event

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if not isinstance(event, type) or event is h11.PAUSED:
                return event
            self._http.receive_data(await self._stream.receive_some(RECEIVE_BYTES))

    async def _answer(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # a bug in a page must affect only its request
            log.error("internal error in an admin page; please report this", exc_info=error)
        if self._http.our_state is h11.SEND_RESPONSE:
            await self._refuse(500)

    async def _receive(self) -> Message:
        """Return the next part of the body; `DISCONNECT` if none will come (ASGI)."""
        try:
            if self._complete:
                while await self._stream.receive_some(RECEIVE_BYTES):
                    pass
                return DISCONNECT
            with trio.fail_after(IDLE_S):
                if self._http.they_are_waiting_for_100_continue:
                    await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
                event = await self._next()
        except (h11.RemoteProtocolError, *_ENDED):
            return DISCONNECT
        if isinstance(event, h11.Data):
            return {"type": "http.request", "body": bytes(event.data), "more_body": True}
        self._complete = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        """Send a part of the response (ASGI). If the client is gone, `_receive` tells it."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        parts = []
        if self._start is not None:
            headers = [*self._start.get("headers", ()), *_headers()]
            parts.append(self._http.send(h11.Response(status_code=self._start["status"], headers=headers)))
            self._start = None
        if message.get("body"):
            parts.append(self._http.send(h11.Data(data=message["body"])))
        if not message.get("more_body", False):
            parts.append(self._http.send(h11.EndOfMessage()))
        for part in parts:
            await self._write(part)

    async def _write(self, data: bytes | None) -> None:
        try:
            await self._stream.send_all(data or b"")
        except _ENDED:
            self._stream.close()

    async def _refuse(self, status: int) -> None:
        """Answer a request that no application answers."""
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]}
        )
        await self._send({"type": "http.response.body"})

    async def _end(self) -> None:
        """Close the connection so that the client reads the whole response."""
        with suppress(*_ENDED):
            await self._stream.send_eof()
            if self._unread():
                with trio.move_on_after(LINGER_S):
                    while await self._stream.receive_some(RECEIVE_BYTES):
                        pass
            await self._stream.aclose()

    def _unread(self) -> bool:
        """Return True if the client may still send a part of the request."""
        with suppress(h11.RemoteProtocolError):
            self._http.next_event()  # the end of a request without a body is an event, too
        return self._http.their_state is not h11.DONE


def _headers() -> list[tuple[bytes, bytes]]:
    return [(b"date", formatdate(usegmt=True).encode()), (b"connection", b"close")]


def _scope(request: h11.Request, stream: AdminStream) -> Scope:
    target, headers = _origin_form(request.target, list(request.headers))
    path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "asgi": {
            "version": "3.0",
            "spec_version": "2.3",
        },  # 2.4 would see the end of a client only when sending
        "http_version": request.http_version.decode(),
        "method": request.method.decode(),
        "scheme": stream.scheme,
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": _peer(stream),
        "server": None,
    }


def _origin_form(
    target: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return target and headers with a target that begins with its path. The host in a target in absolute
    form replaces the Host header (RFC 9112, 3.2.2).
    """
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in {b"http", b"https"}:
        return target, headers
    host = rest.partition(b"/")[0].partition(b"?")[0]
    path = rest.removeprefix(host)
    others = [(name, value) for name, value in headers if name != b"host"]
    return path if path.startswith(b"/") else b"/" + path, [(b"host", host), *others]


def _peer(stream: AdminStream) -> tuple[str, int] | None:
    if stream.socket.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    with suppress(OSError):  # the client has gone
        host, port, *_others = stream.socket.getpeername()
        return host, port
    return None
