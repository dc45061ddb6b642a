"""Requests that are decoded as a whole.

A large request is decoded in pieces (`protocol.pieces`), by a query that asks the broker nothing. Then the
request is decided about again, with the decoded message in `Context.decoded`.
"""

from __future__ import annotations

from typing import Final, TypeVar

from weir.protocol.codec import Codec
from weir.protocol.errors import ProtocolError, UnencodableError
from weir.protocol.messages import Message
from weir.protocol.pieces import PIECE_BYTES
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import Query
from weir.proxy.handlers.plan import Context

ELEMENTS_MAX: Final = 20_000
"""Maximum number of elements in all arrays of one request together. A request with more closes the
connection. KRaft controllers refuse requests of more than 10,000 changes
(QuorumController.MAX_RECORDS_PER_USER_OP).
"""

R = TypeVar("R", bound=Message)


def whole_request(
    context: Context,
    codec_: Codec[R],
    data: bytearray,
    body: int,
    end: int,
    *,
    elements_max: int = ELEMENTS_MAX,
) -> R | Query:
    """Decode the complete request with body `data[body:end]`, and return the message. For a large request,
    return a query that decodes the request in pieces; Weir then decides about the request again.

    Raises ProtocolError if the request is malformed, so that a broker could not read it either, and
    OversizedError if it is large and has more than `elements_max` elements.
    """
    decoded = context.decoded
    if isinstance(decoded, ProtocolError):
        raise decoded
    if isinstance(decoded, codec_.message):
        return decoded
    if end - body <= PIECE_BYTES:
        return codec_.decode_request(data, body, end)
    return Query(_decode(context, codec_, bytes(memoryview(data)[body:end]), elements_max), again=True)


def readable_request(
    context: Context, codec_: Codec[R], data: bytearray, body: int, end: int
) -> R | Query | None:
    """Decode the complete request with body `data[body:end]` as `whole_request`; return None if it is
    malformed, so that a broker could not read it either. Raises UnencodableError for a request that a broker
    can read, but that Weir could not encode again, or that has too many elements.
    """
    try:
        return whole_request(context, codec_, data, body, end)
    except UnencodableError:
        raise
    except ProtocolError:
        return None


def keep(context: Context, decoded: object) -> None:
    """Set the message that a query has decoded from the present request. Weir then decides about the request
    again.
    """
    context.decoded = decoded


def _decode(context: Context, codec_: Codec[R], body: bytes, elements_max: int) -> BrokerQuery:
    try:
        context.decoded = yield from codec_.decode_in_pieces(body, elements_max=elements_max)
    except ProtocolError as error:
        context.decoded = error
    return None
