"""The attackers, in a process of their own that yields the processor to others.

    python -m tests.attacks.attacker NAME HOST PORT

Each connection sends as fast as it is read, and throws away all responses; one that is closed is made again.
It runs until it is ended.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.attacks.attacks import BY_NAME
from tests.hostile.files import raise_descriptor_limit

if TYPE_CHECKING:
    from tests.attacks.attacks import Attack
    from tests.wire.connection import Address

NICE: Final = 10
READ_BYTES: Final = 1 << 18
CONNECTS_PER_ROUND: Final = 50
"""Connections made between two looks at those that are there."""


class Attacker:
    def __init__(
        self, attack: Attack, number: int, address: Address, selector: selectors.BaseSelector
    ) -> None:
        self._attack = attack
        self._address = address
        self._selector = selector
        self._pieces = attack.send(number)
        self._unsent = memoryview(b"")
        self._sock: socket.socket | None = None

    def connect(self) -> None:
        self._sock = sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self._address)
        self._unsent = memoryview(b"")
        self._selector.register(sock, self._events, self)

    @property
    def _events(self) -> int:
        return selectors.EVENT_WRITE | (selectors.EVENT_READ if self._attack.reads else 0)

    def ready(self, events: int) -> bool:
        """Send and read what goes; return False if the connection was closed."""
        sock = self._sock
        assert sock is not None
        try:
            if events & selectors.EVENT_READ and not sock.recv(READ_BYTES):
                raise ConnectionError
            if events & selectors.EVENT_WRITE:
                self._send(sock)
        except BlockingIOError:
            return True
        except OSError:
            self._selector.unregister(sock)
            sock.close()
            return False
        return True

    def _send(self, sock: socket.socket) -> None:
        if not self._unsent:
            piece = next(self._pieces, b"")
            self._unsent = memoryview(piece)
            if not piece:
                self._selector.modify(sock, selectors.EVENT_READ, self)
                return
        self._unsent = self._unsent[sock.send(self._unsent) :]


def run(attack: Attack, address: Address) -> None:
    with selectors.DefaultSelector() as selector:
        closed = [Attacker(attack, number, address, selector) for number in range(attack.connections)]
        while True:
            again, closed = closed[:CONNECTS_PER_ROUND], closed[CONNECTS_PER_ROUND:]
            for attacker in again:
                attacker.connect()
            for key, events in selector.select(0.01 if closed else 1.0):
                if not key.data.ready(events):
                    closed.append(key.data)


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(NICE)
    raise_descriptor_limit()
    name, host, port = sys.argv[1:]
    run(BY_NAME[name], (host, int(port)))
