"""How a connection begins before its first request: with nothing, with a TLS handshake, with an
authentication. The generator's processes do this too, so little is imported.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Final

TLS_VERSION: Final = "TLSv1.3"
CIPHER: Final = "TLS_AES_128_GCM_SHA256"
"""What the generator's processes offer, by `openssl.cnf`: so all targets encrypt with the same."""
_LENGTH: Final = Struct(">i")
_ERROR_CODE: Final = slice(4, 6)
"""In a response without its length: behind the correlation id, for what is used as a greeting."""


class EntryError(ConnectionError):
    """A target did not let us in."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What comes before the first request."""

    ca: str = ""
    """File (PEM) with the authority that the target's certificate is of; empty: no TLS."""
    greetings: tuple[str, ...] = ()
    """Request frames in hexadecimal, each sent when the one before is answered. Their responses must begin
    with an error code, which must be 0.
    """


PLAIN: Final = Entry()


def open_connection(
    host: str, port: int, entry: Entry, timeout_s: float, *, one_cipher: bool = False
) -> socket.socket:
    """Connect and do what comes first; with `one_cipher`, refuse to measure TLS of another kind than all
    targets are to have. Raises OSError, EntryError.
    """
    connection = socket.create_connection((host, port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if entry.ca:
            connection = encrypted = _context(entry.ca).wrap_socket(connection, server_hostname=host)
            if one_cipher:
                _check_cipher(encrypted)
        for greeting in entry.greetings:
            _greet(connection, bytes.fromhex(greeting))
    except BaseException:
        connection.close()
        raise
    return connection


def _greet(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(frame)
    code = int.from_bytes(receive_frame(connection)[_LENGTH.size :][_ERROR_CODE], signed=True)
    if code:
        raise EntryError(f"not let in: error code {code} before the first request")


def receive_frame(connection: socket.socket) -> bytes:
    """Read one frame, its length included. Raises OSError, EntryError."""
    head = _receive(connection, _LENGTH.size)
    return head + _receive(connection, _LENGTH.unpack(head)[0])


def _receive(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        more = connection.recv(min(count - len(received), 1 << 18))
        if not more:
            raise EntryError("the connection was closed instead of an answer")
        received += more
    return bytes(received)


def _check_cipher(connection: ssl.SSLSocket) -> None:
    cipher = connection.cipher()
    found = connection.version(), cipher and cipher[0]
    if found != (TLS_VERSION, CIPHER):
        raise EntryError(f"TLS is {' with '.join(map(str, found))}, not {TLS_VERSION} with {CIPHER}")


@cache
def _context(ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context
