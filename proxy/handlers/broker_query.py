"""A query: requests that Weir sends to the broker on a client's connection before that client gets its
response.

Some requests cannot be decided about by their bytes alone (the number of partitions of a topic to delete is
not in the request), or need several requests to the broker. A query is a generator:

    def delete(request: DeleteTopicsRequest) -> BrokerQuery:
        found = yield from ask(MetadataRequest(...), 4, MetadataResponse)
        ...
        return (yield from ask(request, 1, DeleteTopicsResponse))

The generator yields questions, is sent the broker's responses, and returns the response for the client. If it
returns None, the client's request is decided about again. A question that cannot be encoded in its version
raises EncodeError within the generator. `RunningQuery` makes frames of the questions, and the connection
sends them. The client's next requests wait until the query has ended, as requests on one connection do at a
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from protocol.api import request_header_version, response_header_version
from protocol.codec import Codec, codec, response_type
from protocol.errors import EncodeError, ProtocolError
from protocol.framing import (
    CLIENT_ID_OFFSET,
    INCOMPLETE,
    LENGTH_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    client_id_end,
    request_body,
    response_body,
)
from protocol.messages import Message
from protocol.values import schema_of

NO_TAGS = b"\x00"


class Question(NamedTuple):
    """A request to the broker and its version, yielded by a query."""

    message: Message
    version: int


BrokerQuery: TypeAlias = Generator[Question, Message, Message | None]
R = TypeVar("R", bound=Message)


def ask(message: Message, version: int, answer: type[R]) -> Generator[Question, Message, R]:
    """Send the message to the broker in this version; return the response, which has type `answer`. Raises
    EncodeError if the version cannot express the message.
    """
    found = yield Question(message, version)
    if not isinstance(found, answer):
        raise TypeError(f"{type(message).__name__} was answered with {type(found).__name__}")
    return found


class RunningQuery:
    """A query in progress, for one request of a client."""

    __slots__ = (
        "_api_key",
        "_client_id",
        "_query",
        "_version",
        "asked",
        "asked_length",
        "correlation_id",
        "reply",
    )

    def __init__(self, query: BrokerQuery, data: bytearray, frame: int, end: int) -> None:
        """Begin a query for the request `data[frame:end]`, whose header up to the client-id is copied for the
        questions.
        """
        self._query = query
        _length, self._api_key, self._version, self.correlation_id = REQUEST_HEAD.unpack_from(data, frame)
        client_id_stop = client_id_end(data, frame, end)
        self._client_id = bytes(data[frame + CLIENT_ID_OFFSET : client_id_stop])
        self.asked = (self._api_key, self._version)
        """API key and version of the current question; before the first question, of the client's request."""
        self.asked_length = 0
        """Length (bytes) of the current question's frame, without the length prefix."""
        self.reply: bytes | None = None
        """Response frame for the client; None until the query has returned a response."""

    def begin(self) -> bytes | None:
        """Start the query, and return the frame of its first question; None if the query has ended without
        one.
        """
        return self._step(partial(next, self._query))

    def answer(self, data: bytearray, frame: int, end: int) -> bytes | None:
        """Pass the broker's response `data[frame:end]` to the query; return the frame of the next question,
        None if the query has ended.

        Raises ProtocolError if the response cannot be read.
        """
        api_key, version = self.asked
        flexible = response_header_version(api_key, version) == 1
        body = response_body(data, frame, end, flexible=flexible)
        if body == INCOMPLETE:
            raise ProtocolError("the response ends within its header")
        message = codec(response_type(api_key), version).decode(data, body, end)
        return self._step(partial(self._query.send, message))

    def end(self) -> None:
        """Stop the query, because its client has closed."""
        self._query.close()

    def _step(self, advance: Callable[[], Question]) -> bytes | None:
        while True:
            try:
                ask = advance()
            except StopIteration as over:
                if over.value is not None:
                    self.reply = response_frame(self._api_key, self._version, self.correlation_id, over.value)
                return None
            try:
                return self._request(ask)
            except EncodeError as error:
                advance = partial(self._query.throw, error)

    def _request(self, ask: Question) -> bytes:
        message, version = ask
        api_key = schema_of(type(message)).api_key
        body = codec(type(message), version).encode(message)
        tags = NO_TAGS if request_header_version(api_key, version) == 2 else b""
        rest = self._client_id + tags + body
        self.asked = (api_key, version)
        length = self.asked_length = REQUEST_HEAD.size - LENGTH_BYTES + len(rest)
        return REQUEST_HEAD.pack(length, api_key, version, self.correlation_id) + rest


def whole_request(
    codec_: Codec[R], data: bytearray, frame: int, end: int, complete: bool, *, flexible: bool
) -> R | None:
    """Decode the request `data[frame:end]` as a broker does; return None if it is not complete. `flexible` is
    True if the header has tagged fields.

    Raises ProtocolError if a broker could not read the request either.
    """
    body = request_body(data, frame, end, flexible=flexible) if complete else INCOMPLETE
    return None if body == INCOMPLETE else codec_.decode_request(data, body, end)


def response_frame(api_key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """Return the frame of a response to a client. Raises EncodeError if the version cannot express the
    message.
    """
    tags = NO_TAGS if response_header_version(api_key, version) == 1 else b""
    body = tags + codec(type(message), version).encode(message)
    return RESPONSE_HEAD.pack(RESPONSE_HEAD_BYTES - LENGTH_BYTES + len(body), correlation_id) + body
