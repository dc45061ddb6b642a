"""Weir's own connection to a broker: one request at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import (
    INCOMPLETE,
    LENGTH,
    LENGTH_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD_BYTES,
    response_body,
)
from weir.protocol.values import Message, schema_of
from weir.proxy.addresses import Address

M = TypeVar("M", bound=Message)

CLIENT_ID: Final = b"weir"
CORRELATION_ID: Final = 0
"""Correlation id of every request that Weir itself sends. One id is enough, because each connection has at
most one request in flight.
"""
FLEXIBLE_HEADER: Final = 2
"""Version of the request header that has tagged fields."""
NO_TAGS: Final = b"\x00"
RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
TLS_ALERT: Final = b"\x15\x03"


class QuestionError(Exception):
    """A broker did not answer a request of Weir's own; the text names the address and the reason."""

    def __init__(self, text: str, *, reachable: bool, foreign: bool) -> None:
        super().__init__(text)
        self.reachable = reachable
        """True if the broker accepted the TCP connection, and TLS (or its absence) fits the port of the
        broker.
        """
        self.foreign = foreign
        """True if the peer sent bytes that are no Kafka response. False if the peer closed the connection or
        did not answer in time: a broker that requires SASL closes the connection too.
        """


class LoginError(QuestionError):
    """A broker rejects Weir's own credentials; another attempt would fail too."""

    def __init__(self, text: str) -> None:
        super().__init__(text, reachable=True, foreign=False)


class TlsError(QuestionError):
    """A broker cannot be reached with the configured TLS settings; the text says what to set. The broker
    counts as not reachable.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, reachable=False, foreign=False)


class BrokerClosedError(QuestionError):
    """A broker has closed the connection instead of answering."""

    def __init__(self, text: str) -> None:
        super().__init__(text, reachable=True, foreign=False)


class OwnConnection:
    """Weir's own connection to a broker. As an async context manager, it closes the connection at the end."""

    def __init__(self, stream: trio.abc.Stream, address: Address, timeout_s: float) -> None:
        """Begin with a connected stream. Weir waits for each response for at most `timeout_s`."""
        self._stream = stream
        self.address = address
        self.timeout_s = timeout_s

    @property
    def stream(self) -> trio.abc.Stream:
        """The stream, for callers that send frames of their own while no request is in flight."""
        return self._stream

    async def ask(
        self, request: Message, answer: type[M], version: int, *, client_id: bytes = CLIENT_ID
    ) -> M:
        """Send the request in this version, and return the response. Raises QuestionError with the address in
        its text.
        """
        with failures(self.address, self.timeout_s):
            return decode(await self._exchange(_frame(request, version, client_id)), answer, version)

    async def ask_raw(self, request: Message, version: int) -> bytes:
        """Send the request; return the response encoded, without its length prefix, as the function `decode`
        takes it. Raises QuestionError.
        """
        with failures(self.address, self.timeout_s):
            return await self._exchange(_frame(request, version))

    async def send_token(self, token: bytes) -> bytes:
        """Send a SASL token with its length but without a Kafka header (after SaslHandshake v0), and return
        the broker's token.

        Raises QuestionError.
        """
        with failures(self.address, self.timeout_s):
            return await self._exchange(LENGTH.pack(len(token)) + token, least=0)

    async def _exchange(self, frame: bytes, least: int = RESPONSE_HEAD_BYTES - LENGTH_BYTES) -> bytes:
        with trio.fail_after(self.timeout_s):
            await self._stream.send_all(frame)
            start = await self._receive_exactly(LENGTH_BYTES)
            (length,) = LENGTH.unpack(start)
            if start.startswith(TLS_ALERT):
                said = "it speaks TLS: set upstream_tls, or name its PLAINTEXT listener"
                raise TlsError(f"{self.address}: {said}")
            if not least <= length <= RESPONSE_BYTES_MAX:
                raise ProtocolError(f"its answer begins with {start!r}, as no Kafka broker's does")
            return await self._receive_exactly(length)

    async def _receive_exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            more = await self._stream.receive_some(count - len(received))
            if not more:
                raise trio.BrokenResourceError(
                    "the broker closed the connection: does this port need TLS (upstream_tls) "
                    "or SASL (upstream_sasl_mechanism)?"
                )
            received += more
        return bytes(received)

    async def aclose(self) -> None:
        """Close the connection at once."""
        await trio.aclose_forcefully(self._stream)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@contextmanager
def failures(address: Address, timeout_s: float, *, reachable: bool = True) -> Iterator[None]:
    """Turn an error of the connection in the block (closed, timed out, not a Kafka response) into a
    QuestionError whose text begins with the address.
    """
    try:
        yield
    except ProtocolError as error:
        raise QuestionError(f"{address}: {error}", reachable=True, foreign=True) from None
    except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
        text = f"{address}: {_reason(error, timeout_s)}"
        if reachable and isinstance(error, ConnectionError | trio.BrokenResourceError):
            raise BrokerClosedError(text) from None
        raise QuestionError(text, reachable=reachable, foreign=False) from None


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(getattr(error, "strerror", None) or error)


def _frame(request: Message, version: int, client_id: bytes = CLIENT_ID) -> bytes:
    api_key = schema_of(type(request)).api_key
    tags = NO_TAGS if request_header_version(api_key, version) == FLEXIBLE_HEADER else b""
    rest = (
        len(client_id).to_bytes(2, "big") + client_id + tags + codec(type(request), version).encode(request)
    )
    return (
        REQUEST_HEAD.pack(REQUEST_HEAD.size - LENGTH_BYTES + len(rest), api_key, version, CORRELATION_ID)
        + rest
    )


def decode(frame: bytes, answer: type[M], version: int) -> M:
    """Decode a response, given without its length prefix. Raises ProtocolError if the bytes are no response
    of type `answer` to Weir's request.
    """
    (correlation_id,) = LENGTH.unpack_from(frame)
    if correlation_id != CORRELATION_ID:
        raise ProtocolError(f"its answer is to request {correlation_id}, which was not asked")
    try:
        return codec(answer, version).decode(frame, start=_body(frame, schema_of(answer).api_key, version))
    except ProtocolError as error:
        what = schema_of(answer).name.removesuffix("Response")
        raise ProtocolError(f"its answer is no {what} response: {error}") from None


def _body(frame: bytes, api_key: int, version: int) -> int:
    """Return the start of the body of a response that is given without its length prefix. Raises
    ProtocolError.
    """
    flexible = response_header_version(api_key, version) == 1
    start = response_body(frame, -LENGTH_BYTES, len(frame), flexible=flexible)
    if start == INCOMPLETE:
        raise ProtocolError("its header is not complete")
    return start
