"""The server name (SNI) in a client's first TLS record, read before any handshake.

Sources: RFC 8446, sections 4.1.2 and 5.1 (ClientHello, record); RFC 6066, section 3 (server name).
"""

from __future__ import annotations

from typing import Final

_RECORD_HEAD: Final = 5
_HANDSHAKE_HEAD: Final = 4
_CLIENT_HELLO: Final = 1
_VERSION_AND_RANDOM: Final = 34
_SERVER_NAME: Final = 0
"""Type of the extension that has the server name."""
_HOST_NAME: Final = 0


class _UnreadableError(Exception):
    """Error: the bytes end too early, or are no ClientHello."""


class _Bytes:
    """Bytes that are read from the front."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        """Return the next bytes. Raises _UnreadableError if there are fewer."""
        end = self._at + length
        if end > len(self._data):
            raise _UnreadableError
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, length: int) -> int:
        """Return the next bytes as an unsigned number."""
        return int.from_bytes(self.take(length))

    def vector(self, length: int) -> bytes:
        """Return the bytes of a vector, whose size is a number of `length` bytes before it."""
        return self.take(self.number(length))

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)


def server_name(record: bytes) -> str | None:
    """Return the server name in a client's first TLS record; None if it has none, or cannot be read. So a
    ClientHello that spans several records has no name here.
    """
    try:
        return _server_name(_Bytes(record))
    except (_UnreadableError, UnicodeDecodeError):
        return None


def _server_name(record: _Bytes) -> str | None:
    record.take(_RECORD_HEAD)
    if record.number(1) != _CLIENT_HELLO:
        return None
    hello = _Bytes(record.vector(_HANDSHAKE_HEAD - 1))
    hello.take(_VERSION_AND_RANDOM)
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    extensions = _Bytes(hello.vector(2))
    while not extensions.is_at_end:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            names = _Bytes(_Bytes(content).vector(2))
            return names.vector(2).decode("ascii") if names.number(1) == _HOST_NAME else None
    return None
