"""Headers of the PROXY protocol, version 2, built from the fields that HAProxy's proxy-protocol.txt lists."""

from __future__ import annotations

import ipaddress
from typing import Final

SIGNATURE: Final = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
LOCAL, PROXY = 0x20, 0x21
UNSPEC, TCP_4, UDP_4, TCP_6, UDP_6, UNIX_STREAM = 0x00, 0x11, 0x12, 0x21, 0x22, 0x31


def header(command: int, kind: int, rest: bytes = b"", *, length: int | None = None) -> bytes:
    claimed = len(rest) if length is None else length
    return SIGNATURE + bytes([command, kind]) + claimed.to_bytes(2, "big") + rest


def ends(source: str, port: int, destination: str = "", destination_port: int = 9092) -> bytes:
    """Return the block of addresses and ports of TCP or UDP over either family."""
    first = ipaddress.ip_address(source)
    second = ipaddress.ip_address(destination) if destination else first
    ports = port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return first.packed + second.packed + ports


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + len(value).to_bytes(2, "big") + value


def of(source: str, port: int) -> bytes:
    """Return the header that a load balancer sends for a client of TCP."""
    return header(PROXY, TCP_6 if ":" in source else TCP_4, ends(source, port))
