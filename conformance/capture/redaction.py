"""Removes credentials, and on request the payloads of records, from the events of a capture.

Sizes stay, so frames still decode. These bytes become filler:

- the tokens of SaslAuthenticate, and bare tokens behind SaslHandshake v0, in both directions;
- delegation tokens' HMACs, salted passwords of SCRAM, values of sensitive configs (`credentials`);
- frames of unknown APIs, responses without a known request, and malformed frames that may contain
  credentials, behind their heads.

Memory per connection is bounded: frames above `WHOLE_BYTES_MAX` that may contain credentials become filler.
Where bytes are missing, the events continue at the next request and response that can be recognized; the
bytes up to there count as dropped, because their frames, and so their credentials, cannot be found.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from functools import partial
from typing import Final

from weir.conformance.capture import credentials
from weir.conformance.capture.frame_edits import Blanked, Edit, Filled, FrameStream, Passed, Whole
from weir.conformance.capture.records_blanking import RECORDS, RecordsBlanking
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.protocol import ApiKey, is_flexible, request_type, response_type, versions
from weir.protocol.api import response_header_version
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    LENGTH_BYTES,
    REQUEST_HEAD,
    REQUEST_HEAD_BYTES,
    REQUEST_LENGTH_MIN,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    RESPONSE_LENGTH_MIN,
    request_body,
    response_body,
)

WHOLE_BYTES_MAX: Final = 1024 * 1024
"""Maximum length of a frame that is held until it is complete, because it may contain credentials."""
IN_FLIGHT_MAX: Final = 4096
"""Maximum number of requests per connection that wait for their responses; the oldest are forgotten. Requests
without responses (acks=0) stay until then.
"""
CLIENT_ID_BYTES_MIN: Final = 2
"""Size (bytes) of the shortest client-id, empty or null, with its length."""
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Maximum length of a frame at which events continue behind missing bytes."""


class Redaction:
    """Redacts events, in the order of time."""

    def __init__(self, *, credentials: bool = True, records: bool = False) -> None:
        """Replace credentials, and the payloads of records, if these are True."""
        self._credentials = credentials
        self._records = records
        self._connections: dict[int, _RedactedConnection] = {}
        self.filled = 0
        """Number of frames that were replaced behind their heads, because they could not be read."""

    def feed(self, event: Event) -> Iterator[Event]:
        """Return the events that take this event's place. Bytes may be held until a frame is complete."""
        connection = self._connections.get(event.connection)
        if connection is None or isinstance(event, Opened):
            connection = _RedactedConnection(self, lost=not isinstance(event, Opened))
            self._connections[event.connection] = connection
        match event:
            case Bytes():
                yield from connection.bytes_of(event)
            case Closed(number, time_ns, side):
                yield from connection.rest(number, time_ns, side)
                yield event
                connection.closed.add(side)
                if len(connection.closed) == len(Side):
                    del self._connections[number]
            case Dropped(number, time_ns):
                for side in Side:
                    yield from connection.rest(number, time_ns, side)
                connection.lose()
                yield event
            case Opened():
                yield event

    def finish(self, time_ns: int) -> Iterator[Event]:
        """Return the bytes that are still held, because no more events come."""
        for number, connection in self._connections.items():
            for side in Side:
                yield from connection.rest(number, time_ns, side)
        self._connections.clear()

    @property
    def replaces(self) -> tuple[bool, bool]:
        """True, True if credentials, and payloads of records, are replaced."""
        return self._credentials, self._records


class _RedactedConnection:
    """The state of one connection."""

    def __init__(self, redaction: Redaction, *, lost: bool) -> None:
        self.closed: set[Side] = set()
        """Sides that send no more."""
        self._redaction = redaction
        self._in_flight: OrderedDict[int, deque[tuple[int, int]]] = OrderedDict()
        """(API key, version) of unanswered requests, by correlation id."""
        self._in_sasl = False
        """True after SaslHandshake v0 until a request comes: frames of the client are bare tokens."""
        self._tokens_left = 0
        """Number of next frames of the client that are certainly tokens."""
        self._tokens_unanswered = 0
        self._streams = self._new_streams()
        self._lost = {Side.CLIENT: lost, Side.SERVER: lost}
        """True for sides without a known start of a frame, because bytes are missing."""
        self._client_id: bytes | None = None
        """Client-id of the first request, with its length; None before it. Later requests have the same."""

    def bytes_of(self, event: Bytes) -> Iterator[Event]:
        """Return the events for these bytes."""
        if self._lost[event.side] and not self._is_found(event.side, event.data):
            yield Dropped(event.connection, event.time_ns, event.side, len(event.data))
            return
        if self._client_id is None and event.side is Side.CLIENT:
            self._client_id = _client_id(event.data) or b""
        ready = self._streams[event.side].feed(event.data)
        if ready is event.data:
            yield event
        elif ready:
            yield Bytes(event.connection, event.time_ns, event.side, ready)

    def rest(self, number: int, time_ns: int, side: Side) -> Iterator[Event]:
        """Return the bytes of the side that are still held, edited."""
        if held := self._streams[side].cut():
            yield Bytes(number, time_ns, side, held)

    def lose(self) -> None:
        """Bytes of either side are missing."""
        self._lost = dict.fromkeys(Side, True)
        self._in_flight.clear()
        self._in_sasl, self._tokens_left, self._tokens_unanswered = False, 0, 0

    # Requests

    def _request(self, head: bytearray, length: int) -> Edit:
        if self._in_sasl:
            return self._token_frame(length)
        if length < REQUEST_LENGTH_MIN:
            return self._filled(LENGTH_BYTES)
        _length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(head)
        return self._edit_request(api_key, version, correlation_id, length)

    def _edit_request(self, api_key: int, version: int, correlation_id: int, length: int) -> Edit:
        self._sent(api_key, version, correlation_id)
        hides, blanks = self._redaction.replaces
        if versions(api_key) is None:
            return self._filled(REQUEST_HEAD_BYTES) if hides else Passed()
        known, short = credentials.is_known(api_key, version), length <= WHOLE_BYTES_MAX
        if hides and api_key == ApiKey.SASL_HANDSHAKE and version == 0:
            if not short:
                self._begin_sasl("")
                return self._filled(REQUEST_HEAD_BYTES)
            return Whole(lambda frame: self._begin_sasl(credentials.mechanism(frame)), REQUEST_HEAD_BYTES)
        if hides and api_key in credentials.REQUESTS:
            if not (known and short):
                return self._filled(REQUEST_HEAD_BYTES)
            return Whole(partial(self._mask_request, api_key, version), REQUEST_HEAD_BYTES)
        if blanks and (message := request_type(api_key)) in RECORDS:
            if not known:
                return self._filled(REQUEST_HEAD_BYTES)
            flexible = is_flexible(api_key, version)
            return Blanked(
                lambda frame, end: request_body(frame, 0, end, flexible=flexible),
                RecordsBlanking(message, version),
            )
        return Passed()

    def _sent(self, api_key: int, version: int, correlation_id: int) -> None:
        self._in_flight.setdefault(correlation_id, deque(maxlen=IN_FLIGHT_MAX)).append((api_key, version))
        if len(self._in_flight) > IN_FLIGHT_MAX:
            self._in_flight.popitem(last=False)

    def _mask_request(self, api_key: int, version: int, frame: bytearray) -> None:
        self._redaction.filled += not credentials.mask_request(frame, api_key, version)

    # Bare SASL tokens

    def _begin_sasl(self, mechanism: str) -> None:
        self._in_sasl = True
        self._tokens_left = 2 if mechanism.startswith("SCRAM-") else 1

    def _token_frame(self, length: int) -> Edit:
        """Return the edit for a token, or perhaps, behind the certain tokens, for the first request."""
        if self._tokens_left or length > WHOLE_BYTES_MAX:
            self._tokens_left = max(0, self._tokens_left - 1)
            self._tokens_unanswered += 1
            return Filled(LENGTH_BYTES)
        return Whole(self._edit_token_or_request, LENGTH_BYTES)

    def _edit_token_or_request(self, frame: bytearray) -> None:
        if not credentials.is_request(frame):
            self._tokens_unanswered += 1
            frame[:] = Filled(LENGTH_BYTES).feed(frame, is_last=True)
            return
        self._in_sasl = False
        length, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        edit = self._edit_request(api_key, version, correlation_id, length)
        frame[:] = edit.feed(bytearray(frame), is_last=True)

    # Responses

    def _response(self, head: bytearray, length: int) -> Edit:
        hides, blanks = self._redaction.replaces
        if length < RESPONSE_LENGTH_MIN:
            self._tokens_unanswered = max(0, self._tokens_unanswered - 1)
            return Filled(LENGTH_BYTES)
        _length, correlation_id = RESPONSE_HEAD.unpack_from(head)
        waiting = self._in_flight.get(correlation_id, deque())
        if self._tokens_unanswered and not any(key == ApiKey.SASL_HANDSHAKE for key, _version in waiting):
            self._tokens_unanswered -= 1
            return Filled(LENGTH_BYTES)
        is_ambiguous = len(set(waiting)) > 1 and any(key in credentials.RESPONSES for key, _ in waiting)
        answered = self._answered(correlation_id)
        if hides and (answered is None or is_ambiguous):
            return self._filled(RESPONSE_HEAD_BYTES)
        if answered is None or versions(answered[0]) is None:
            return self._filled(RESPONSE_HEAD_BYTES)
        return self._edit_response(*answered, length, hides=hides, blanks=blanks)

    def _edit_response(self, api_key: int, version: int, length: int, *, hides: bool, blanks: bool) -> Edit:
        known = credentials.is_known(api_key, version)
        if hides and api_key in credentials.CHECKED_RESPONSES:
            if not known or length > WHOLE_BYTES_MAX:
                return self._filled(RESPONSE_HEAD_BYTES)
            return Whole(partial(self._mask_response, api_key, version), RESPONSE_HEAD_BYTES)
        if blanks and (message := response_type(api_key)) in RECORDS:
            if not known:
                return self._filled(RESPONSE_HEAD_BYTES)
            flexible = response_header_version(api_key, version) > 0
            return Blanked(
                lambda frame, end: response_body(frame, 0, end, flexible=flexible),
                RecordsBlanking(message, version),
            )
        return Passed()

    def _mask_response(self, api_key: int, version: int, frame: bytearray) -> None:
        self._redaction.filled += not credentials.mask_response(frame, api_key, version)

    def _answered(self, correlation_id: int) -> tuple[int, int] | None:
        """Return (API key, version) of the oldest unanswered request with this correlation id, and forget
        it.
        """
        waiting = self._in_flight.get(correlation_id)
        if waiting is None:
            return None
        found = waiting.popleft()
        if not waiting:
            del self._in_flight[correlation_id]
        return found

    def _filled(self, kept: int) -> Filled:
        self._redaction.filled += 1
        return Filled(kept)

    # Missing bytes

    def _is_found(self, side: Side, data: bytes) -> bool:
        """Return True if these bytes begin with a frame that can be recognized: a request
        whose head is plausible, or the response to a request behind the missing bytes.
        """
        if side is Side.SERVER:
            if self._lost[Side.CLIENT] or len(data) < RESPONSE_HEAD_BYTES:
                return False
            length, correlation_id = RESPONSE_HEAD.unpack_from(data)
            found = RESPONSE_LENGTH_MIN <= length <= FRAME_BYTES_MAX and correlation_id in self._in_flight
        else:
            found = self._is_request(data)
        if found:
            self._streams[side] = self._new_streams()[side]
            self._lost[side] = False
        return found

    def _is_request(self, data: bytes) -> bool:
        """Return True if the data begins with a request: with the client-id of the first request, or wholly
        readable. Zeros in records look like a head, too, and what follows would pass unread.
        """
        client_id = _client_id(data)
        if client_id is None:
            return False
        length, api_key, version, _correlation_id = REQUEST_HEAD.unpack_from(data)
        if CLIENT_ID_OFFSET + len(client_id) > LENGTH_BYTES + length or length > FRAME_BYTES_MAX:
            return False
        if len(client_id) > CLIENT_ID_BYTES_MIN and client_id == self._client_id:
            return credentials.is_known(api_key, version)
        frame = data[: LENGTH_BYTES + length]
        return len(frame) == LENGTH_BYTES + length and credentials.is_request(bytearray(frame))

    def _new_streams(self) -> dict[Side, FrameStream]:
        return {
            Side.CLIENT: FrameStream(REQUEST_HEAD_BYTES, self._request),
            Side.SERVER: FrameStream(RESPONSE_HEAD_BYTES, self._response),
        }


def _client_id(data: bytes) -> bytes | None:
    """Return the client-id, with its length, of a request at the start of `data`; None if it is cut."""
    size = int.from_bytes(data[CLIENT_ID_OFFSET : CLIENT_ID_OFFSET + 2], "big", signed=True)
    end = CLIENT_ID_OFFSET + 2 + max(0, size)
    return data[CLIENT_ID_OFFSET:end] if CLIENT_ID_OFFSET + 2 <= len(data) >= end and size >= -1 else None
