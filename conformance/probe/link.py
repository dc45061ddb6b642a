"""One connection to the target of a probe: blocking, each wait with a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from weir.conformance.verify.finding import hex_around
from weir.conformance.verify.messages import read
from weir.conformance.verify.response_form import response_form
from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH, LENGTH_BYTES, skip_tags
from weir.protocol.messages import RequestHeader

if TYPE_CHECKING:
    import ssl

    from weir.protocol.values import Message

CLIENT_ID: Final = "weir-probe"
RESPONSE_MAX: Final = 16 << 20
"""Maximum length (bytes) of a response that is read. Decoded, a hostile one takes some ten times as much."""
TLS_ALERT: Final = b"\x15\x03"


class ProbeTarget(msgspec.Struct, frozen=True):
    """A server to probe."""

    host: str
    port: int
    timeout_s: float = 5.0
    """Time (s) after which a missing response, or a missing end of the connection, counts as hung."""
    tls: ssl.SSLContext | None = None


class ConversationError(Exception):
    """Base of what ends a conversation."""


class RefusedError(ConversationError):
    """Raised if the target does not accept the connection."""


class ClosedError(ConversationError):
    """Raised if the target closed the connection, by FIN or RST."""


class HungError(ConversationError):
    """Raised if nothing came before the deadline."""


class UnreadableError(ConversationError):
    """Raised for a response that does not decode, or has another correlation id. The text says which."""


class ProbeLink:
    """One connection. Use it in a `with` block."""

    def __init__(self, target: ProbeTarget) -> None:
        """Connect. Raises RefusedError."""
        self.target = target
        self._correlation_id = 0
        self._deadline = 0.0
        try:
            self._socket = socket.create_connection((target.host, target.port), target.timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.tls is not None:
                self._socket = target.tls.wrap_socket(self._socket, server_hostname=target.host)
        except OSError as error:
            raise RefusedError(f"{target.host}:{target.port}: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ClosedError, HungError."""
        self._socket.settimeout(self.target.timeout_s)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise HungError(f"the target took no bytes for {self.target.timeout_s:g} s") from None
        except OSError as error:
            raise ClosedError(error.strerror or str(error)) from None

    def end_sending(self) -> None:
        """End this side of the connection. The target may still answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self, timeout_s: float | None = None, shortest: int = 4) -> bytes:
        """Return the next frame without its length prefix. Raises ClosedError, HungError, UnreadableError.
        `timeout_s`: instead of the target's. `shortest`: least number of bytes; 0 for a bare SASL token.
        """
        self._deadline = time.monotonic() + (self.target.timeout_s if timeout_s is None else timeout_s)
        prefix = self._receive(LENGTH_BYTES)
        if prefix.isascii() and prefix.decode().isprintable():
            raise UnreadableError(
                f"the target answers {prefix.decode()!r}: does it speak HTTP? name a port for Kafka's clients"
            )
        if prefix.startswith(TLS_ALERT):
            raise UnreadableError("the target speaks TLS: give --set upstream_tls=FILE")
        (length,) = LENGTH.unpack(prefix)
        if not shortest <= length <= RESPONSE_MAX:
            raise UnreadableError(f"the response's length is {length}")
        return self._receive(length)

    def ask(self, message: Message, api_key: int, version: int, timeout_s: float | None = None) -> Message:
        """Send a request, and return the response. Raises ConversationError. `timeout_s`: instead of the
        target's.
        """
        self._correlation_id += 1
        self.send(frame(message, api_key, version, self._correlation_id))
        return decode(self.receive(timeout_s), api_key, version, self._correlation_id)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise HungError("no response came in time")
            self._socket.settimeout(left_s)
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except TimeoutError:
                raise HungError("no response came in time") from None
            except OSError as error:
                raise ClosedError(error.strerror or str(error)) from None
            if not part:
                raise ClosedError("in the middle of a response" if parts else "without a response")
            parts += part
        return bytes(parts)


def same_host(one: str, other: str) -> bool:
    """Return True if two host names are equal, or have an address in common."""
    if one == other:
        return True
    addresses = []
    for host in (one, other):
        try:
            addresses.append({found[4][0] for found in socket.getaddrinfo(host, None)})
        except OSError:
            return False
    return not addresses[0].isdisjoint(addresses[1])


def frame(
    message: Message, api_key: int, version: int, correlation_id: int, client_id: str | None = CLIENT_ID
) -> bytes:
    """Return a request's frame, with its length prefix. Raises EncodeError, UnknownVersionError."""
    body = codec(request_type(api_key), version).encode(message)
    data = header(api_key, version, correlation_id, client_id) + body
    return LENGTH.pack(len(data)) + data


def header(api_key: int, version: int, correlation_id: int, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a request header's bytes in the form that belongs to this version. Raises
    UnknownVersionError.
    """
    values = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return codec(RequestHeader, request_header_version(api_key, version)).encode(values)


def decode(data: bytes, api_key: int, version: int, correlation_id: int) -> Message:
    """Return the response in a frame without its length prefix. Raises UnreadableError."""
    found = int.from_bytes(data[:4], signed=True)
    if found != correlation_id:
        raise UnreadableError(f"the response has correlation id {found}, the request {correlation_id}")
    try:
        start = 4
        if response_header_version(api_key, version) == 1:
            start = skip_tags(data, 4, len(data))
        if start == INCOMPLETE:
            raise ProtocolError("the header's tagged fields exceed the response")
        return codec(response_type(api_key), version).decode(data, start)
    except ProtocolError as error:
        reason = _explained(LENGTH.pack(len(data)) + data, api_key, version) or str(error)
        raise UnreadableError(f"the response does not decode at version {version}: {reason}") from None


def _explained(data: bytes, api_key: int, version: int) -> str:
    """Return the first defect of a response, which begins with its length prefix; "" if none is known."""
    shape, defects = response_form(data, api_key, version)
    for one in defects or (read(data, shape).defects if shape is not None else []):
        place = f"{one.path}: " if one.path else ""
        values = f"Expected {one.expected}, found {one.found}. " if one.expected else ""
        return f"{place}{one.message} {values}Byte {one.offset}: {hex_around(data, one.offset)}"
    return ""
