"""Converts events to JSON lines: one object per frame, with the decoded message, and per other event.

Requests are paired with responses by their correlation ids. Bytes of a message are in base64, bytes that
cannot be decoded in hex.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from weir.conformance.capture.credentials import is_known
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.conformance.frames import Frame, FrameCutter, LengthError
from weir.protocol import ProtocolError, codec, is_flexible, request_type, response_type, schema
from weir.protocol.api import ApiKey, response_header_version
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    INCOMPLETE,
    LENGTH_BYTES,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    client_id_end,
    request_body,
    response_body,
)
from weir.protocol.messages import ProduceRequest

HEX_BYTES_MAX: Final = 256
"""Maximum number of bytes of an undecodable frame that are shown."""
IN_FLIGHT_MAX: Final = 4096
_UNSUPPORTED: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
Line = dict[str, object]


class JsonLines:
    """The lines of a sequence of events."""

    def __init__(self) -> None:
        self._connections: dict[int, _ConnectionFrames] = {}

    def feed(self, event: Event) -> Iterator[bytes]:
        """Return the lines, without newlines, of the frames that are complete with this event."""
        connection = self._connections.get(event.connection)
        if connection is None or isinstance(event, Opened):
            connection = self._connections[event.connection] = _ConnectionFrames()
        for line in connection.lines(event):
            yield msgspec.json.encode({"connection": event.connection, "time_ns": event.time_ns, **line})
        if len(connection.closed) == len(Side):
            del self._connections[event.connection]


def json_lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Return the lines of these events, without newlines."""
    lines = JsonLines()
    for event in events:
        yield from lines.feed(event)


class _ConnectionFrames:
    """The frames of one connection."""

    def __init__(self) -> None:
        self.closed: set[Side] = set()
        self._cutters = {side: FrameCutter() for side in Side}
        self._in_flight: dict[int, deque[tuple[int, int]]] = {}
        """(API key, version) of unanswered requests by correlation id."""

    def lines(self, event: Event) -> Iterator[Line]:
        """Return the lines of this event."""
        match event:
            case Opened():
                yield {
                    "event": "opened",
                    "client": event.client,
                    "server": event.server,
                    "label": event.label,
                }
            case Closed():
                self.closed.add(event.side)
                yield {"event": "closed", "side": event.side.name.lower()}
            case Dropped():
                self._cutters[event.side] = FrameCutter()
                yield {"event": "dropped", "side": event.side.name.lower(), "bytes": event.count}
            case Bytes():
                yield from self._frames(event)

    def _frames(self, event: Bytes) -> Iterator[Line]:
        decode = self._request if event.side is Side.CLIENT else self._response
        try:
            for frame in self._cutters[event.side].feed(event.data, event.time_ns):
                yield decode(frame)
        except LengthError as error:
            self._cutters[event.side] = FrameCutter()
            yield {"event": "malformed", "side": event.side.name.lower(), "error": f"length {error.length}"}

    def _request(self, frame: Frame) -> Line:
        data = frame.data
        line: Line = {"event": "request", "bytes": len(data)}
        if len(data) < REQUEST_HEAD_BYTES:
            return _malformed(line, data, "shorter than a request's header")
        length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(data)
        line["bytes"] = LENGTH_BYTES + length
        line |= {
            "api_key": api_key,
            "api": _name(api_key),
            "version": version,
            "correlation_id": correlation_id,
        }
        waiting = self._in_flight.setdefault(correlation_id, deque(maxlen=IN_FLIGHT_MAX))
        waiting.append((api_key, version))
        if len(self._in_flight) > IN_FLIGHT_MAX:
            del self._in_flight[next(iter(self._in_flight))]
        if not is_known(api_key, version):
            return _malformed(line, data, "not in the schemas")
        try:
            end = client_id_end(data, 0, len(data))
            line["client_id"] = data[CLIENT_ID_OFFSET + 2 : max(0, end)].decode("utf-8", "replace")
            body = request_body(data, 0, len(data), flexible=is_flexible(api_key, version))
            message = codec(request_type(api_key), version).decode(data, _found(body, frame))
            line["message"] = message
            if isinstance(message, ProduceRequest) and message.acks == 0:
                self._forget(correlation_id)
        except ProtocolError as error:
            return _malformed(line, data, str(error))
        return line

    def _forget(self, correlation_id: int) -> None:
        """Expect no response to the latest request with this correlation id."""
        self._in_flight[correlation_id].pop()
        if not self._in_flight[correlation_id]:
            del self._in_flight[correlation_id]

    def _response(self, frame: Frame) -> Line:
        data = frame.data
        line: Line = {"event": "response", "bytes": len(data)}
        if len(data) < RESPONSE_HEAD_BYTES:
            return _malformed(line, data, "shorter than a response's header")
        length, correlation_id = RESPONSE_HEAD.unpack_from(data)
        line |= {"bytes": LENGTH_BYTES + length, "correlation_id": correlation_id}
        waiting = self._in_flight.get(correlation_id)
        if not waiting:
            return _malformed(line, data, "no request of the capture has this correlation id")
        api_key, version = waiting.popleft()
        if not waiting:
            del self._in_flight[correlation_id]
        line |= {"api_key": api_key, "api": _name(api_key), "version": version}
        if api_key == ApiKey.API_VERSIONS and data[RESPONSE_HEAD_BYTES:].startswith(_UNSUPPORTED):
            version = 0  # KIP-511
        if not is_known(api_key, version):
            return _malformed(line, data, "not in the schemas")
        try:
            flexible = response_header_version(api_key, version) > 0
            body = response_body(data, 0, len(data), flexible=flexible)
            line["message"] = codec(response_type(api_key), version).decode(data, _found(body, frame))
        except ProtocolError as error:
            return _malformed(line, data, str(error))
        return line


def _found(body: int, frame: Frame) -> int:
    """Return the position of the body. Raises ProtocolError if the header does not end, or the frame was too
    long to be kept.
    """
    if body == INCOMPLETE or not frame.whole:
        raise ProtocolError("the frame is too long" if not frame.whole else "the header does not end")
    return body


def _name(api_key: int) -> str | None:
    found = schema.api(api_key)
    return None if found is None else found.name


def _malformed(line: Line, data: bytes, error: str) -> Line:
    return {**line, "error": error, "hex": data[:HEX_BYTES_MAX].hex()}
