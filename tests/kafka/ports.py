"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import os
import random
import socket

from tests.kafka.settings import HOST

_LOWEST, _HIGHEST = 20_000, 32_000  # below what Linux hands to outgoing connections
_GIVEN: set[int] = set()
"""Ports that this process was given: they look free until somebody listens there."""
_GIVEN_MAX = 2_000


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def free_range(count: int) -> int:
    """The first of `count` adjacent free ports, drawn at random so that processes rarely meet.

    pytest's workers never do: each has a stretch of its own. One process is not given a port twice in a row.
    """
    low, high = _stretch()
    if len(_GIVEN) > _GIVEN_MAX:
        _GIVEN.clear()
    while True:
        first = random.randrange(low, high - count + 1)
        ports = range(first, first + count)
        if _GIVEN.isdisjoint(ports) and all(is_free(port) for port in ports):
            _GIVEN.update(ports)
            return first


def _stretch() -> tuple[int, int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = (_HIGHEST - _LOWEST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return _LOWEST + worker * ports, _LOWEST + (worker + 1) * ports
