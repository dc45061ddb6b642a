"""The messages of a take-over, and the link that carries them."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
import trio

from weir.quotas.handover import UsedUnits

PROTOCOL: Final = 1
"""Version of this protocol. A Weir of another version is refused with Kept."""
PACKET_BYTES_MAX: Final = 128 * 1024
"""Maximum size (bytes) of a message; below Linux's default of net.core.wmem_max."""
FDS_MAX: Final = 200
"""Maximum number of descriptors in a message; Linux allows 253."""
BROKERS_MAX: Final = 200
"""Maximum number of brokers in a message."""
USED_MAX: Final = 50
"""Maximum number of limiters in a message: each takes at most about 2 KB."""


class Hello(msgspec.Struct, tag=True, frozen=True):
    """The new Weir asks for the listeners."""

    protocol: int = PROTOCOL


class Sockets(msgspec.Struct, tag=True, frozen=True):
    """Listening sockets, as descriptors of the packet."""


class KnownBrokers(msgspec.Struct, tag="Brokers", frozen=True):
    """Known brokers: (node id, host, port)."""

    brokers: list[tuple[int, str, Annotated[int, msgspec.Meta(ge=1, le=65535)]]]


class CarriedUnits(msgspec.Struct, tag="Usage", frozen=True):
    """Units that clients have used, and that still count."""

    used: list[UsedUnits]


class Word(msgspec.Struct, tag=True, frozen=True):
    """A message without content."""

    word: Literal["sent", "ready", "paused", "take", "yours", "kept"]


Message: TypeAlias = Hello | Sockets | KnownBrokers | CarriedUnits | Word
_DECODER: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)


class TakeoverError(Exception):
    """The other Weir has gone, or has sent no message of this protocol."""


class TakeoverLink:
    """One end of a connection between two Weirs."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        """Take over a connected SOCK_SEQPACKET socket."""
        self._sock = sock
        self.gone = False
        """True once the other end has closed the connection."""

    async def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send a message with these descriptors. Raises TakeoverError."""
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            await self._sock.sendmsg([msgspec.json.encode(message)], ancillary)
        except OSError as error:
            self.gone = True
            raise TakeoverError(error.strerror or str(error)) from None

    async def receive(self) -> tuple[Message, list[socket.socket]]:
        """Return the next message, and the sockets sent with it. Raises TakeoverError."""
        try:
            data, ancillary, _flags, _address = await self._sock.recvmsg(
                PACKET_BYTES_MAX, socket.CMSG_SPACE(FDS_MAX * array.array("i").itemsize), _CLOEXEC
            )
        except OSError as error:
            self.gone = True
            raise TakeoverError(error.strerror or str(error)) from None
        received = _sockets(ancillary)
        self.gone = not data
        try:
            if not data:
                raise TakeoverError("it has ended")
            return _DECODER.decode(data), received
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TakeoverError) as error:
            for sock in received:
                sock.close()
            raise TakeoverError(str(error)) from None

    def close(self) -> None:
        self._sock.close()


_CREDENTIALS: Final = struct.Struct("iII")
"""Linux's struct ucred: process, user and group id."""
_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def is_trusted(sock: trio.socket.SocketType) -> bool:
    """Return True if the process at the other end of a Unix socket belongs to this process's user, or to
    root. For a socket that has connected, it is the process that listens.
    """
    return user_of(sock) in (0, os.geteuid())


def user_of(sock: trio.socket.SocketType) -> int:
    """Return the user id of the process at the other end of a Unix socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user


def _sockets(ancillary: list[tuple[int, int, bytes]]) -> list[socket.socket]:
    """Return the received sockets; close received descriptors that are no sockets."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    found: list[socket.socket] = []
    for fd in fds:
        try:
            found.append(socket.socket(fileno=fd))
        except OSError:
            os.close(fd)
    return found
