"""One question to a broker, on a connection of its own: what Weir asks before any client does."""

from __future__ import annotations

import os
from typing import Final, TypeVar

import trio

from protocol.codec import codec
from protocol.errors import ProtocolError
from protocol.heads import LENGTH, LENGTH_BYTES, REQUEST_HEAD, RESPONSE_HEAD_BYTES
from protocol.values import Message, schema_of
from proxy.addresses import Address
from proxy.transport import sockets

M = TypeVar("M", bound=Message)

CLIENT_ID: Final = b"weir"
CORRELATION_ID: Final = 0
RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
TLS_ALERT: Final = b"\x15\x03"


class QuestionError(Exception):
    """A broker did not answer."""

    def __init__(self, text: str, *, reachable: bool, foreign: bool) -> None:
        super().__init__(text)
        self.reachable = reachable
        """It accepted a connection."""
        self.foreign = foreign
        """It answered as no Kafka broker does; one that closes the connection unasked may want SASL."""


async def ask(address: Address, request: Message, answer: type[M], version: int, timeout_s: float) -> M:
    """Connect, send the request in a version with header v1, and return the response.

    Connecting and answering may each take `timeout_s`. Raises QuestionError, with the address in its text.
    """
    reachable = False
    try:
        with trio.fail_after(timeout_s):
            sock = await sockets.connect(address)
        reachable = True
        try:
            with trio.fail_after(timeout_s):
                stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
                await stream.send_all(_frame(request, version))
                return _decode(await _response(stream), answer, version)
        finally:
            sock.close()
    except ProtocolError as error:
        raise QuestionError(f"{address}: {error}", reachable=True, foreign=True) from None
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
        text = f"{address}: {_reason(error, timeout_s)}"
        raise QuestionError(text, reachable=reachable, foreign=False) from None


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(getattr(error, "strerror", None) or error)


def _frame(request: Message, version: int) -> bytes:
    body = codec(type(request), version).encode(request)
    client_id = len(CLIENT_ID).to_bytes(2, "big") + CLIENT_ID
    length = REQUEST_HEAD.size - LENGTH_BYTES + len(client_id) + len(body)
    api_key = schema_of(type(request)).api_key
    return REQUEST_HEAD.pack(length, api_key, version, CORRELATION_ID) + client_id + body


async def _response(stream: trio.SocketStream) -> bytes:
    """Return a response's frame without its length. Raises ProtocolError, trio.BrokenResourceError."""
    start = await _receive_exactly(stream, LENGTH_BYTES)
    (length,) = LENGTH.unpack(start)
    if start.startswith(TLS_ALERT):
        raise ProtocolError("it speaks TLS, which Weir does not: name its PLAINTEXT listener")
    if not RESPONSE_HEAD_BYTES - LENGTH_BYTES <= length <= RESPONSE_BYTES_MAX:
        raise ProtocolError(f"its answer begins with {start!r}, as no Kafka broker's does")
    return await _receive_exactly(stream, length)


def _decode(frame: bytes, answer: type[M], version: int) -> M:
    (correlation_id,) = LENGTH.unpack_from(frame)
    if correlation_id != CORRELATION_ID:
        raise ProtocolError(f"its answer is to request {correlation_id}, which was not asked")
    try:
        return codec(answer, version).decode(frame, start=LENGTH_BYTES)
    except ProtocolError as error:
        what = schema_of(answer).name.removesuffix("Response")
        raise ProtocolError(f"its answer is no {what} response: {error}") from None


async def _receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        more = await stream.receive_some(count - len(received))
        if not more:
            raise trio.BrokenResourceError(
                "the broker closed the connection: does this port need TLS or SASL?"
            )
        received += more
    return bytes(received)
