"""Headers of the PROXY protocol. Documented errors: NoHeaderError, InvalidHeaderError."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from tests.fuzz.target import Target
from tests.wire.proxy_headers import LOCAL, PROXY, TCP_4, TCP_6, UNIX_STREAM, UNSPEC, ends, header, of, tlv
from weir.proxy.net.proxy_protocol.header import (
    HEADER_BYTES_MAX,
    Header,
    InvalidHeaderError,
    NoHeaderError,
    parse,
)


def run(data: bytes) -> None:
    """Read the bytes as a connection does: never more than asked for, until the header is complete."""
    got = b""
    try:
        while not isinstance(parsed := parse(got), Header):
            assert len(got) < parsed <= HEADER_BYTES_MAX
            more = data[len(got) : parsed]
            if not more:
                return
            got += more
    except (NoHeaderError, InvalidHeaderError):
        return
    if parsed.client is not None:
        ipaddress.ip_address(parsed.client.host)
        assert 0 <= parsed.client.port <= 65535


def seeds() -> Sequence[bytes]:
    return [
        of("192.0.2.7", 56324),
        of("2001:db8::7", 443),
        header(PROXY, TCP_4, ends("192.0.2.7", 1) + tlv(4, b"noop") + tlv(0x20, bytes(60))),
        header(PROXY, TCP_6, ends("::ffff:192.0.2.7", 1)),
        header(PROXY, UNIX_STREAM, bytes(216)),
        header(PROXY, UNSPEC),
        header(LOCAL, UNSPEC),
        b"PROXY TCP4 192.0.2.7 192.0.2.8 56324 443\r\n",
    ]


HEADERS: Final = Target("proxy-headers", run, seeds)
