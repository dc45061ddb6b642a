"""`/api/events`: events as server-sent events. A reader that connects again resumes where it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from weir.proxy.admin.problems import problem
from weir.proxy.control.events.hub import EventReader, Hub, TooManyReadersError
from weir.proxy.control.events.records import Event, to_json

PATH: Final = "/api/events"
ALIVE_S: Final = 15.0
"""Time (s) without events after which a comment is sent: it shows readers, and proxies before them, that the
connection is alive, and shows Weir readers that are gone.
"""
RETRY_MS: Final = 1000
"""Time (ms) after which a browser connects again."""
ID_MAX: Final = 2**63
KEEP_OPEN: Final = "weir.keep_open"
"""Key of an ASGI scope: function to call once a reader has a place, after which its connection has no time
limit.
"""
MEDIA_TYPE: Final = "text/event-stream"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


def route(hub: Hub) -> Route:
    """Return the route of `PATH`. The header `Last-Event-ID`, or the parameter `after` of the first request,
    asks for the kept events with a larger id.
    """

    async def events(request: Request) -> Response:
        if request.method == "HEAD":  # its response ends, so it needs no reader
            return Response(headers=_HEADERS, media_type=MEDIA_TYPE)
        text = request.headers.get("last-event-id") or request.query_params.get("after")
        try:
            after = _id(text)
            reader = hub.read(after)
        except ValueError as error:
            return problem(400, str(error))
        except TooManyReadersError as error:
            return problem(503, str(error))
        lost = after is not None and hub.lost(after)
        return _EventStream(reader, lost=lost)

    return Route(PATH, events, methods=["GET"])


class _EventStream(StreamingResponse):
    """A response that forgets its reader at its end, also if the client goes before the first byte."""

    def __init__(self, reader: EventReader, *, lost: bool) -> None:
        self._parts = stream(reader, lost=lost)
        super().__init__(self._parts, media_type=MEDIA_TYPE, headers=_HEADERS)
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._reader:
            scope[KEEP_OPEN]()
            async with aclosing(self._parts):
                await super().__call__(scope, receive, send)


async def stream(
    reader: EventReader, *, lost: bool = False, alive_s: float = ALIVE_S
) -> AsyncGenerator[bytes, None]:
    """Yield the events of the reader as server-sent events. The last one of a reader that is too slow is
    `closed`. `lost`: begin with `lost`, because older events are not kept.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    if lost:
        yield b'event: lost\ndata: {"reason":"older events are not kept"}\n\n'
    while True:
        try:
            event = await reader.next(alive_s)
        except trio.EndOfChannel:
            yield b'event: closed\ndata: {"reason":"the reader is too slow"}\n\n'
            return
        yield b": alive\n\n" if event is None else encoded(event)


def encoded(event: Event) -> bytes:
    """Return an event as a server-sent event. It has no `event` field, so that browsers pass all kinds to one
    listener (`onmessage`); its data has the kind.
    """
    return b"id: %d\ndata: %b\n\n" % (event.id, to_json(event))


def _id(text: str | None) -> int | None:
    """Return the number in `text`; None without a text. Raises ValueError."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < ID_MAX):
        raise ValueError("the id of the last event must be a number, as sent with an event")
    return int(text)
