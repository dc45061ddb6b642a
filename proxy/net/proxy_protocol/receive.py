"""Read a PROXY header from a load balancer's connection, in Trio, before TLS and before the reactor takes
over the socket.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

from weir.proxy.addresses import Address
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.proxy_protocol.header import Header, InvalidHeaderError, NoHeaderError, parse

HEADER_S: Final = 5.0
"""Time (s) in which a load balancer must send the whole header. It sends the header when it connects; the
specification asks for at least 3 s, the time of one retransmission.
"""


class NoClientError(Exception):
    """Error: the header did not arrive, or cannot be used. It has the close reason."""

    def __init__(self, reason: CloseReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


async def receive(sock: socket.socket) -> Address | None:
    """Read the header from a non-blocking socket, and no byte behind it. Return the client's address; None if
    the header has none. Raises NoClientError; the socket stays open.
    """
    try:
        with trio.fail_after(HEADER_S):
            return (await _header(sock)).client
    except trio.TooSlowError:
        raise NoClientError(
            CloseReason.PROXY_HEADER_TIMEOUT, f"no PROXY header within {HEADER_S:g} s"
        ) from None
    except NoHeaderError as missing:  # a name for each, because mypyc gives a name one type
        raise NoClientError(CloseReason.PROXY_HEADER_MISSING, str(missing)) from None
    except InvalidHeaderError as invalid:
        raise NoClientError(CloseReason.PROXY_HEADER_INVALID, str(invalid)) from None
    except OSError as reset:
        raise NoClientError(CloseReason.CLIENT_RESET, str(reset)) from None


async def _header(sock: socket.socket) -> Header:
    """Read until the header is complete. Raises NoClientError if the peer has closed; a load balancer that
    closes without a byte has only checked the port.
    """
    data = b""
    while True:
        parsed = parse(data)
        if isinstance(parsed, Header):
            return parsed
        try:
            more = sock.recv(parsed - len(data))
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock)
            continue
        if not more:
            reason = CloseReason.PROXY_HEADER_INVALID if data else CloseReason.CLIENT_CLOSED
            raise NoClientError(reason, f"closed after {len(data)} bytes of a PROXY header")
        data += more
