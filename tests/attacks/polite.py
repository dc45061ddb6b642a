"""The polite client: one small request every 20 ms, and how long each took."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tests.hostile.stage import ask
from tests.proxy.certificates import client_context
from tests.wire.connection import Address
from tests.wire.frames import request
from weir.protocol.messages import MetadataRequest

PACE_S: Final = 0.02
PATIENCE_S: Final = 30.0
"""A request that takes longer has failed."""
METADATA: Final = request(MetadataRequest(topics=[]), 9, client_id=b"polite")


@dataclass(frozen=True)
class Times:
    """How long (s) requests took, in order of length."""

    seconds: tuple[float, ...]
    failed: int = 0
    """Number of requests whose connection ended, or that were not answered in `PATIENCE_S`."""

    def ms(self, share: float) -> float:
        """Return the time (ms) within which this share of the requests was answered."""
        return 1000 * self.seconds[max(math.ceil(share * len(self.seconds)) - 1, 0)]


def measure(address: Address, kind: str, seconds: float) -> Times:
    """Ask at this pace for so long; `kind` is `Attack.polite`."""
    taken: list[float] = []
    failed = 0
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        once = _KINDS[kind](address, stack)
        while (began := time.monotonic()) < until or not taken:
            try:
                once()
            except OSError:
                failed += 1
                once = _KINDS[kind](address, stack)
            taken.append(time.monotonic() - began)
            time.sleep(max(PACE_S - taken[-1], 0))  # the pace is the client's own
    return Times(tuple(sorted(taken)), failed)


def _metadata(address: Address, stack: ExitStack) -> Callable[[], None]:
    """One connection for all requests."""
    sock = stack.enter_context(socket.create_connection(address, PATIENCE_S))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def once() -> None:
        if len(ask(sock, METADATA)) < 4:
            raise ConnectionError

    return once


def _handshake(address: Address, _stack: ExitStack) -> Callable[[], None]:
    """A TLS connection for each request; only the handshake counts."""

    def once() -> None:
        with (
            socket.create_connection(address, PATIENCE_S) as plain,
            client_context().wrap_socket(plain) as sock,
        ):
            sock.settimeout(PATIENCE_S)

    return once


def _healthz(address: Address, _stack: ExitStack) -> Callable[[], None]:
    """An HTTP connection for each request."""

    def once() -> None:
        with socket.create_connection(address, PATIENCE_S) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
            if not sock.recv(1024).startswith(b"HTTP/1.1 200"):
                raise ConnectionError

    return once


_KINDS: Final = {"metadata": _metadata, "handshake": _handshake, "healthz": _healthz}
