"""Parse a header of the PROXY protocol, version 2 (HAProxy's proxy-protocol.txt, section 2.2)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final, NamedTuple

from weir.proxy.addresses import Address

SIGNATURE: Final = bytes.fromhex("0d0a0d0a000d0a515549540a")
FIXED_BYTES: Final = 16
"""Size (bytes) of a header's fixed part: signature, version and command, family and transport, length."""
HEADER_BYTES_MAX: Final = 4096
"""Maximum size (bytes) of a header. The addresses need 52 bytes, and the specification expects headers
smaller than a TCP segment.
"""
VERSION_1: Final = b"PROXY "
"""First bytes of a header of version 1, which is text."""
_REST: Final = Struct(">BBH")
_LOCAL: Final = 0
_PROXY: Final = 1
_FAMILY_MAX: Final = 3
_TRANSPORT_MAX: Final = 2
_TCP_4: Final = 0x11
_TCP_6: Final = 0x21
_ENDS_4: Final = Struct(">4s4sHH")
_ENDS_6: Final = Struct(">16s16sHH")


class NoHeaderError(ValueError):
    """Error: the first bytes of a connection belong to no header of the PROXY protocol."""


class InvalidHeaderError(ValueError):
    """Error: a header is of version 1, malformed or too long."""


class Header(NamedTuple):
    """A complete header."""

    client: Address | None
    """The client's address; None if the header has none: the load balancer has opened the connection for
    itself (LOCAL), or the client's connection is not TCP over IP.
    """


def parse(data: bytes) -> Header | int:
    """Return the header that `data` is; if it is incomplete, return the total size (bytes) of the header as
    far as it is known, which is above `len(data)`. Bytes behind the addresses (TLVs) are ignored.

    Raises NoHeaderError or InvalidHeaderError, as early as the bytes show the error.
    """
    if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
        _refuse(data)
    if len(data) < FIXED_BYTES:
        return FIXED_BYTES
    command, kind, rest_bytes = _REST.unpack_from(data, len(SIGNATURE))
    _check(command, kind, rest_bytes)
    if len(data) < FIXED_BYTES + rest_bytes:
        return FIXED_BYTES + int(rest_bytes)
    return Header(None if command & 15 == _LOCAL else _client(kind, data))


def _refuse(data: bytes) -> None:
    """Raise the error for bytes that are not the signature's. Return if they may still begin version 1."""
    if data.startswith(VERSION_1):
        raise InvalidHeaderError("a header of version 1: have the load balancer send version 2")
    if not VERSION_1.startswith(data):
        raise NoHeaderError("no PROXY header: have the load balancer send version 2")


def _check(command: int, kind: int, rest_bytes: int) -> None:
    """Check the fixed part. Raises InvalidHeaderError. A LOCAL header may have any family: it is ignored."""
    if command >> 4 != 2 or command & 15 > _PROXY:
        raise InvalidHeaderError(f"version {command >> 4}, command {command & 15}: not in the protocol")
    if command & 15 == _PROXY and (kind >> 4 > _FAMILY_MAX or kind & 15 > _TRANSPORT_MAX):
        raise InvalidHeaderError(f"address family {kind >> 4}, transport {kind & 15}: not in the protocol")
    if FIXED_BYTES + rest_bytes > HEADER_BYTES_MAX:
        raise InvalidHeaderError(f"{FIXED_BYTES + rest_bytes} bytes long, limit {HEADER_BYTES_MAX}")
    needed = {_TCP_4: _ENDS_4.size, _TCP_6: _ENDS_6.size}.get(kind, 0)
    if command & 15 == _PROXY and rest_bytes < needed:
        raise InvalidHeaderError(f"{rest_bytes} bytes of addresses, {needed} needed")


def _client(kind: int, data: bytes) -> Address | None:
    """Return the source address; an IPv4 address mapped to IPv6 as IPv4."""
    if kind == _TCP_4:
        packed, _, port, _ = _ENDS_4.unpack_from(data, FIXED_BYTES)
        return Address(str(IPv4Address(packed)), port)
    if kind == _TCP_6:
        packed, _, port, _ = _ENDS_6.unpack_from(data, FIXED_BYTES)
        address = IPv6Address(packed)
        return Address(str(address.ipv4_mapped or address), port)
    return None
