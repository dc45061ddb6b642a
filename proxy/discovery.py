"""Asking the cluster which brokers it has: one Metadata request, on a connection of its own.

Weir learns brokers from the responses that pass through as well; asking makes their listeners open before the
first client needs one, and follows brokers that come and move while no client asks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

import trio

from protocol.api import ApiKey
from protocol.codec import codec
from protocol.errors import ProtocolError
from protocol.heads import LENGTH, LENGTH_BYTES, REQUEST_HEAD, RESPONSE_HEAD_BYTES
from protocol.messages import MetadataRequest, MetadataResponse
from proxy import sockets
from proxy.addresses import Address

METADATA_VERSION: Final = 1
"""Every broker from 0.10 to the newest has it, and in it an empty list of topics means none."""
CLIENT_ID: Final = b"weir"
CORRELATION_ID: Final = 0
RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024


TLS_ALERT: Final = b"\x15\x03"


class DiscoveryError(Exception):
    """No broker told its cluster."""

    def __init__(self, text: str, *, reachable: bool, foreign: bool) -> None:
        super().__init__(text)
        self.reachable = reachable
        """One of them accepted a connection, at least."""
        self.foreign = foreign
        """Whoever accepted a connection answered as no Kafka broker does; one that closes it unasked may want
        SASL.
        """


async def discover(bootstrap: Iterable[Address], timeout_s: float) -> dict[int, Address]:
    """Return the cluster's brokers by node id, from the first of the addresses that answers.

    Raises DiscoveryError.
    """
    failures: list[str] = []
    reachable, foreign = 0, 0
    for address in bootstrap:
        try:
            with trio.fail_after(timeout_s):
                sock = await sockets.connect(address)
        except (OSError, trio.TooSlowError) as error:
            failures.append(f"{address}: {_reason(error, timeout_s)}")
            continue
        reachable += 1
        try:
            with trio.fail_after(timeout_s):
                return await _ask(trio.SocketStream(trio.socket.from_stdlib_socket(sock)))
        except ProtocolError as error:
            foreign += 1
            failures.append(f"{address}: {error}")
        except (OSError, trio.TooSlowError, trio.BrokenResourceError) as error:
            failures.append(f"{address}: {_reason(error, timeout_s)}")
        finally:
            sock.close()
    raise DiscoveryError("; ".join(failures), reachable=reachable > 0, foreign=0 < reachable == foreign)


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0).lower()
    return str(getattr(error, "strerror", None) or error)


async def _ask(stream: trio.SocketStream) -> dict[int, Address]:
    body = codec(MetadataRequest, METADATA_VERSION).encode(MetadataRequest(topics=[]))
    client_id = len(CLIENT_ID).to_bytes(2, "big") + CLIENT_ID
    length = REQUEST_HEAD.size - LENGTH_BYTES + len(client_id) + len(body)
    head = REQUEST_HEAD.pack(length, ApiKey.METADATA, METADATA_VERSION, CORRELATION_ID)
    await stream.send_all(head + client_id + body)
    start = await _receive_exactly(stream, LENGTH_BYTES)
    (length,) = LENGTH.unpack(start)
    if start.startswith(TLS_ALERT):
        raise ProtocolError("it speaks TLS, which Weir does not: name its PLAINTEXT listener")
    if not RESPONSE_HEAD_BYTES - LENGTH_BYTES <= length <= RESPONSE_BYTES_MAX:
        raise ProtocolError(f"its answer begins with {start!r}, as no Kafka broker's does")
    return _brokers(await _receive_exactly(stream, length))


def _brokers(frame: bytes) -> dict[int, Address]:
    """Decode a Metadata response, without its length. Raises ProtocolError."""
    (correlation_id,) = LENGTH.unpack_from(frame)
    if correlation_id != CORRELATION_ID:
        raise ProtocolError(f"its answer is to request {correlation_id}, which was not asked")
    try:
        response = codec(MetadataResponse, METADATA_VERSION).decode(frame, start=LENGTH_BYTES)
    except ProtocolError as error:
        raise ProtocolError(f"its answer is no Metadata response: {error}") from None
    return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}


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
