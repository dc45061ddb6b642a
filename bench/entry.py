"""Begin a connection before its first request: nothing to do, a TLS handshake, or an authentication. The load
generator's processes import this module, so it imports little.
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
"""The only cipher that the load generator offers (`openssl.cnf`), so that all targets encrypt with the same
one.
"""
_LENGTH: Final = Struct(">i")
_ERROR_CODE: Final = slice(4, 6)
"""Position of the error code in a response without its length field: directly after the correlation id, as in
the responses to SaslHandshake and SaslAuthenticate.
"""


class EntryError(ConnectionError):
    """Raised if a target closes the connection, rejects the authentication, or negotiates another TLS version
    or cipher than expected.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """The steps of a connection before its first request."""

    ca: str = ""
    """Path of the certificate (PEM) of the authority that issued the target's certificate; "" for a
    connection without TLS.
    """
    greetings: tuple[str, ...] = ()
    """Frames of the requests (in hexadecimal) to send one after the other. Each response must begin with the
    error code 0.
    """


PLAIN: Final = Entry()


def open_connection(
    host: str, port: int, entry: Entry, timeout_s: float, *, one_cipher: bool = False
) -> socket.socket:
    """Connect, with the TLS handshake and authentication of `entry`. With `one_cipher`, raise EntryError for
    a TLS connection with another version or cipher than TLS_VERSION and CIPHER, because its figures would not
    be comparable. Raises OSError.
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
    """Read one frame; return it with its length field. Raises OSError, EntryError if the connection ends."""
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
