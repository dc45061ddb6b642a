"""The new Weir's side of a take-over."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog
import trio

from weir.proxy.addresses import Address
from weir.proxy.config.settings import ConfigError
from weir.proxy.net import sockets
from weir.proxy.server.takeover.messages import (
    CarriedUnits,
    Hello,
    KnownBrokers,
    Message,
    Sockets,
    TakeoverError,
    TakeoverLink,
    Word,
    is_trusted,
)
from weir.quotas.handover import UsedUnits

log = structlog.get_logger("weir")

PATIENCE_S: Final = 10.0
"""Maximum time (s) to wait for a message of the running Weir."""


class Taker:
    """A take-over in progress: the sockets and brokers of the running Weir."""

    def __init__(self, link: TakeoverLink) -> None:
        self._link = link
        self.sockets: list[socket.socket] = []
        """Listening sockets of the running Weir."""
        self.brokers: dict[int, Address] = {}
        """Brokers that the running Weir knows."""

    async def begin(self) -> None:
        """Receive sockets and brokers. Raises TakeoverError."""
        try:
            await self._link.send(Hello())
            while (message := await self._next()) != Word("sent"):
                if isinstance(message, KnownBrokers):
                    self.brokers |= {node_id: Address(host, port) for node_id, host, port in message.brokers}
                elif not isinstance(message, Sockets):
                    raise TakeoverError(f"unexpected message {message}")
        except BaseException:
            sockets.close_all(self.sockets)
            self._link.close()
            raise

    async def finish(self, absorb: Callable[[Iterable[UsedUnits]], None]) -> None:
        """Take the listeners; call `absorb` with what clients have used. This process may accept clients
        afterwards. Raises ConfigError if the running Weir keeps the listeners.
        """
        try:
            await self._link.send(Word("ready"))
            while (message := await self._next()) != Word("paused"):
                if isinstance(message, CarriedUnits):
                    absorb(message.used)
            await self._link.send(Word("take"))
            await self._next()
        except TakeoverError as error:
            if not self._link.gone:
                raise ConfigError(f"takeover_socket: the running Weir keeps its listeners: {error}") from None
            log.warning("the former Weir has ended, its listeners are taken", reason=str(error))
        finally:
            self._link.close()
        log.info("listeners taken over", brokers=len(self.brokers))

    async def _next(self) -> Message:
        """Return the next message; keep its sockets. Raises TakeoverError, also for the message Kept."""
        with trio.move_on_after(PATIENCE_S):
            message, received = await self._link.receive()
            self.sockets += received
            if message == Word("kept"):
                raise TakeoverError("it does not hand over")
            return message
        raise TakeoverError(f"no message within {PATIENCE_S:g} s")


async def begin(path: Path) -> Taker | None:
    """Ask the Weir that runs at this path for its listeners; return None if no Weir runs there. Raises
    ConfigError if it does not hand them over.
    """
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        await sock.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise ConfigError(f"takeover_socket {path}: {error.strerror or error}") from None
    if not is_trusted(sock):
        sock.close()
        raise ConfigError(f"takeover_socket {path}: a process of another user listens there")
    taker = Taker(TakeoverLink(sock))
    try:
        await taker.begin()
    except TakeoverError as error:
        raise ConfigError(f"takeover_socket {path}: the running Weir does not hand over: {error}") from None
    log.info("taking over", sockets=len(taker.sockets), brokers=len(taker.brokers))
    return taker
