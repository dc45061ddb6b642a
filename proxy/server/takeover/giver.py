"""The running Weir's side of a take-over."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import trio

from weir.proxy.addresses import Address
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.supervisor import Works
from weir.proxy.server.takeover.messages import (
    BROKERS_MAX,
    FDS_MAX,
    PROTOCOL,
    USED_MAX,
    CarriedUnits,
    Hello,
    KnownBrokers,
    Sockets,
    TakeoverError,
    TakeoverLink,
    Word,
    is_trusted,
    user_of,
)
from weir.quotas.handover import UsedUnits

log = structlog.get_logger("weir")

HELLO_S: Final = 5.0
"""Maximum time (s) to wait for the first message."""
START_S: Final = 120.0
"""Maximum time (s) for which a new Weir may start before it is ready to take the listeners."""
PATIENCE_S: Final = 5.0
"""Maximum time (s) to wait for the new Weir while no client is accepted."""


@dataclass(frozen=True, slots=True)
class Estate:
    """The things to hand over, and the functions that do it."""

    sockets: Callable[[], list[socket.socket]]
    brokers: Callable[[], Mapping[int, Address]]
    used: Callable[[], Iterator[UsedUnits | None]]
    """Function that returns the units that clients have used, in steps; None for a step without units."""
    pause: Callable[[], None]
    """Function that stops accepting clients."""
    flush: Callable[[], Awaitable[None]]
    """Coroutine function that waits until `used` has all units."""
    resume: Callable[[], None]
    """Function that accepts clients again."""
    leave: Callable[[], None]
    """Function that drains, and ends the process."""


class Giver:
    """Waits for a new Weir at a Unix socket, and hands over once."""

    def __init__(self, path: Path, estate: Estate) -> None:
        """Open the socket, in place of that of a Weir that has handed over. Raises ConfigError."""
        if path.exists() and not path.is_socket():
            raise ConfigError(
                f"takeover_socket {path}: a file that is no socket is there: choose another path"
            )
        self._estate = estate
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.unlink(missing_ok=True)
            self._sock.bind(str(new))
            new.chmod(0o600)
            self._sock.listen(1)
            self._sock.setblocking(False)
            self._inode = new.stat().st_ino
            new.replace(path)
        except OSError as error:
            self._sock.close()
            raise ConfigError(f"takeover_socket {path}: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the socket, and remove it unless another Weir has replaced it."""
        self._sock.close()
        with suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    async def serve(self, works: Works) -> None:
        """Hand over to the first Weir that takes the listeners; until then, to cancellation."""
        listening = trio.socket.from_stdlib_socket(self._sock.dup())
        with listening:
            while True:
                sock, _address = await listening.accept()
                link = TakeoverLink(sock)
                try:
                    if not is_trusted(sock):
                        log.error(
                            "take-over refused: the process belongs to another user", user=user_of(sock)
                        )
                    elif await self._hand_over(link):
                        self._estate.leave()
                        return
                finally:
                    link.close()
                works()

    async def _hand_over(self, link: TakeoverLink) -> bool:
        """Return True if the new Weir has taken the listeners."""
        try:
            await self._give(link)
            log.info("a new Weir is starting, which takes over")
            await _expect(link, "ready", START_S)
            self._estate.pause()
            try:
                await self._take_leave(link)
            except BaseException:
                self._estate.resume()
                raise
        except TakeoverError as error:
            log.warning("take-over abandoned, serving on", reason=str(error))
            with suppress(TakeoverError), trio.move_on_after(HELLO_S):
                await link.send(Word("kept"))
            return False
        log.info("listeners handed over, stopping")
        return True

    async def _give(self, link: TakeoverLink) -> None:
        with trio.move_on_after(HELLO_S):
            message, received = await link.receive()
            for sock in received:
                sock.close()
            if message != Hello(PROTOCOL):
                raise TakeoverError("the new Weir speaks another version of the take-over: restart instead")
            fds = [sock.fileno() for sock in self._estate.sockets() if sock.fileno() >= 0]
            for first in range(0, len(fds), FDS_MAX):
                await link.send(Sockets(), fds[first : first + FDS_MAX])
            brokers = [(node_id, *address) for node_id, address in self._estate.brokers().items()]
            for first in range(0, len(brokers), BROKERS_MAX):
                await link.send(KnownBrokers(brokers[first : first + BROKERS_MAX]))
            await link.send(Word("sent"))
            return
        raise TakeoverError(f"no message within {HELLO_S:g} s")

    async def _take_leave(self, link: TakeoverLink) -> None:
        with trio.move_on_after(PATIENCE_S):  # the new Weir starts with the usage told by then
            await self._estate.flush()
            await self._tell_usage(link)
        await link.send(Word("paused"))
        await _expect(link, "take", PATIENCE_S)
        with suppress(TakeoverError):  # the new Weir has ended since, and its supervisor starts another one
            await link.send(Word("yours"))

    async def _tell_usage(self, link: TakeoverLink) -> None:
        some: list[UsedUnits] = []
        for step in self._estate.used():
            if step is not None:
                some.append(step)
            if some and (step is None or len(some) == USED_MAX):
                await link.send(CarriedUnits(some))
                some = []
            elif step is None:
                await trio.lowlevel.checkpoint()


async def _expect(link: TakeoverLink, word: str, timeout_s: float) -> None:
    """Wait for this word. Raises TakeoverError."""
    with trio.move_on_after(timeout_s):
        message, received = await link.receive()
        for sock in received:
            sock.close()
        if not isinstance(message, Word) or message.word != word:
            raise TakeoverError(f"unexpected message {message}")
        return
    raise TakeoverError(f"the new Weir was not {word!r} within {timeout_s:g} s")
