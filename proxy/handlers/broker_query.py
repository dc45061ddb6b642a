"""A query: requests that Weir sends to the broker on a client's connection before that client gets its
response.

Some requests cannot be decided about by their bytes alone (the number of partitions of a topic to delete is
not in the request), or need several requests to the broker. A query is a generator:

    def delete(request: DeleteTopicsRequest) -> BrokerQuery:
        found = yield from ask(MetadataRequest(...), 4, MetadataResponse)
        ...
        return (yield from ask(request, 1, DeleteTopicsResponse))

The generator yields questions, is sent the broker's responses, and returns the response for the client: a
message, or the bytes of a whole frame. If it returns None, the client's request is decided about again. A
question that cannot be encoded in its version raises EncodeError within the generator, and a response that
cannot be decoded raises ProtocolError, which closes the connection unless the generator catches it.
`RunningQuery` makes frames of the questions, and the connection sends them. The client's next requests wait
until the query has ended, as requests on one connection do at a broker.

A generator that yields a `Pending` continues when that work elsewhere is done, such as a change of the quota
store (`wait_for`). A generator that yields None pauses: it continues in a later turn of the transport, so
that a large message delays other connections only by a piece of the work. All work in a query whose time
depends on the size of a message is done in pieces (`protocol.pieces`): decoding, encoding, loops over topics
(`each`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec, response_type
from weir.protocol.errors import EncodeError, ProtocolError
from weir.protocol.framing import (
    CLIENT_ID_OFFSET,
    INCOMPLETE,
    LENGTH_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    client_id_end,
    response_body,
)
from weir.protocol.messages import Message
from weir.protocol.pieces import Pieces, release
from weir.protocol.values import schema_of

NO_TAGS = b"\x00"
T = TypeVar("T")


class Question(NamedTuple):
    """A request to the broker and its version, yielded by a query."""

    message: Message
    version: int


class Pending:
    """Work elsewhere that a query waits for. The code that does the work must call `done` once, on the
    reactor's thread.
    """

    __slots__ = ("_resume", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._resume: Callable[[], None] | None = None

    def on_done(self, resume: Callable[[], None] | None) -> None:
        """Set the function that is called once the work is done; None for no function."""
        self._resume = resume

    def done(self) -> None:
        """Have the query continue. No effect if its connection has closed."""
        self.is_done = True
        if self._resume is not None:
            self._resume()


Asking: TypeAlias = Generator[Question | Pending | None, Message | None, T]
BrokerQuery: TypeAlias = Asking[Message | bytes | None]
R = TypeVar("R", bound=Message)


def ask(message: Message, version: int, answer: type[R]) -> Asking[R]:
    """Send the message to the broker in this version; return the response, which has type `answer`. Raises
    EncodeError if the version cannot express the message.
    """
    found = yield Question(message, version)
    if not isinstance(found, answer):
        raise TypeError(f"{type(message).__name__} was answered with {type(found).__name__}")
    return found


def wait_for(begin: Callable[[Callable[[T], None]], None]) -> Asking[T]:
    """Call `begin` with a function, and wait until that function is called, once and on the reactor's thread.
    Return its argument.
    """
    pending = Pending()
    results: list[T] = []

    def done(result: T) -> None:
        results.append(result)
        pending.done()

    begin(done)
    yield pending
    return results[0]


class RunningQuery:
    """A query in progress, for one request of a client."""

    __slots__ = (
        "_api_key",
        "_client_id",
        "_query",
        "_steps",
        "_version",
        "asked",
        "asked_length",
        "correlation_id",
        "paused",
        "pending",
        "reply",
    )

    def __init__(self, query: BrokerQuery, data: bytearray, frame: int, end: int) -> None:
        """Begin a query for the client's request `data[frame:end]`. The request's header up to the client-id
        is copied into the query's own requests to the broker.
        """
        self._query = query
        _length, self._api_key, self._version, self.correlation_id = REQUEST_HEAD.unpack_from(data, frame)
        client_id_stop = client_id_end(data, frame, end)
        self._client_id = bytes(data[frame + CLIENT_ID_OFFSET : client_id_stop])
        self.asked = (self._api_key, self._version)
        """API key and version of the latest request that the query has sent to the broker. Before the query's
        first request: those of the client's request.
        """
        self.asked_length = 0
        """Length (bytes) of the latest request that the query has sent to the broker, without the length
        prefix.
        """
        self.reply: bytes | None = None
        """Response frame for the client; None until the query has returned a response."""
        self.paused = False
        """True if the query has paused. The connection must then call `go_on` in a later pass of the
        transport's loop, or after `pending` is done.
        """
        self.pending: Pending | None = None
        """Work that a paused query waits for; None if it waits only for the transport's loop."""
        self._steps = self._run()

    def go_on(self) -> bytes | None:
        """Begin the query, or continue it after a pause. Return the frame of its next request to the broker;
        None if the query has paused or ended. Raises ProtocolError if a message cannot be read.
        """
        return self._step(None)

    def answer(self, data: bytearray, frame: int, end: int) -> bytes | None:
        """Pass the broker's response `data[frame:end]` to the query. Return the frame of the query's next
        request to the broker; None if the query has paused or ended.

        Raises ProtocolError if the response cannot be read.
        """
        api_key, version = self.asked
        flexible = response_header_version(api_key, version) == 1
        body = response_body(data, frame, end, flexible=flexible)
        if body == INCOMPLETE:
            raise ProtocolError("the response ends within its header")
        return self._step(bytes(memoryview(data)[body:end]))

    def end(self) -> None:
        """Stop the query, because its client has closed."""
        if self.pending is not None:
            self.pending.on_done(None)
        self._query.close()
        self._steps.close()  # its frame has a reference to this object

    def _step(self, body: bytes | None) -> bytes | None:
        try:
            question = self._steps.send(body)
        except StopIteration:
            self.paused = False
            return None
        self.paused = question is None
        return question

    def _run(self) -> Generator[bytes | None, bytes | None, None]:
        """Run the query as a generator. It yields the frames of requests to the broker, or None for a pause,
        and is sent the bodies of the broker's responses.
        """
        advance: Callable[[], Question | Pending | None] = partial(next, self._query)
        while True:
            try:
                asked = advance()
            except StopIteration as over:
                value = over.value
                self.reply = (yield from self._reply(value)) if isinstance(value, Message) else value
                return
            if asked is None or isinstance(asked, Pending):
                self.pending = asked
                if asked is None or not asked.is_done:
                    yield None
                self.pending = None
                advance = partial(next, self._query)
                continue
            try:
                frame = yield from self._request(asked)
            except EncodeError as refused:  # another name: mypyc gives a name one type
                advance = partial(self._query.throw, refused)
                continue
            body = yield frame
            assert body is not None
            api_key, version = self.asked
            try:
                message = yield from codec(response_type(api_key), version).decode_in_pieces(body)
            except ProtocolError as error:
                advance = partial(self._query.throw, error)
            else:
                advance = partial(self._query.send, message)

    def _request(self, ask: Question) -> Pieces[bytes]:
        message, version = ask
        api_key = schema_of(type(message)).api_key
        body = yield from codec(type(message), version).encode_in_pieces(message)
        tags = NO_TAGS if request_header_version(api_key, version) == 2 else b""
        rest = self._client_id + tags + body
        self.asked = (api_key, version)
        length = self.asked_length = REQUEST_HEAD.size - LENGTH_BYTES + len(rest)
        return REQUEST_HEAD.pack(length, api_key, version, self.correlation_id) + rest

    def _reply(self, message: Message) -> Pieces[bytes]:
        codec_ = codec(type(message), self._version)
        body = yield from codec_.encode_in_pieces(message)
        for values in (getattr(message, slot.name) for slot in codec_.layout.fields if slot.is_array):
            yield from release(values or [])
        return framed_body(self._api_key, self._version, self.correlation_id, body)


def response_frame(api_key: int, version: int, correlation_id: int, message: Message) -> bytes:
    """Return the frame of a response to a client. Raises EncodeError if the version cannot express the
    message.
    """
    return framed_body(api_key, version, correlation_id, codec(type(message), version).encode(message))


def framed_body(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return the frame of a response to a client; `body` is the encoded message."""
    tags = NO_TAGS if response_header_version(api_key, version) == 1 else b""
    length = RESPONSE_HEAD_BYTES - LENGTH_BYTES + len(tags) + len(body)
    return RESPONSE_HEAD.pack(length, correlation_id) + tags + body
