"""Link: the connection between the supervisor and a worker, for messages and listening sockets."""

from __future__ import annotations

import array
import errno
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import trio

from weir.proxy.workers.messages import Message, decoded, encoded

PIECE_BYTES: Final = 64 * 1024
"""Maximum size (bytes) of a packet; a longer message is sent in several packets."""
SOCKETS_MAX: Final = 64
"""Maximum number of sockets of a message; Linux allows 253."""
RETRY_S: Final = 0.05
"""Time (s) until a packet is sent again for which the kernel had no memory, or too many sockets in flight."""
_TRANSIENT: Final = frozenset({errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS})
_LAST, _MORE = b"\1", b"\0"
"""First byte of a packet: the last one of its message, or not."""


class LinkError(Exception):
    """The other process has gone, or has sent no message of this protocol."""


class _Unsent(NamedTuple):
    """A packet that waits to be sent."""

    packet: bytes
    socks: tuple[socket.socket, ...] = ()
    """Copies of sockets that are sent with the packet."""


class Received(NamedTuple):
    """A message of the other process."""

    message: Message
    socks: list[socket.socket]
    """Sockets sent with it, without those for which this process has no descriptor: the kernel then sets
    MSG_CTRUNC and closes them.
    """


class Link:
    """One end of the connection between the supervisor and a worker. A turn of the reactor may `post` and
    `receive_packet`.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected SOCK_SEQPACKET socket. Call this within Trio."""
        self._plain = sock
        self._sock = trio.socket.from_stdlib_socket(sock)
        self._token = trio.lowlevel.current_trio_token()
        self._received = b""
        """Packets of a message whose last packet has not come yet."""
        self._unsent: deque[_Unsent] = deque()
        self._posted = trio.Event()

    def post(self, message: Message, socks: Sequence[socket.socket] = ()) -> None:
        """Send this message soon, after those posted before, with at most `SOCKETS_MAX` sockets, which stay
        open here.
        """
        data = encoded(message)
        for start in range(0, len(data), PIECE_BYTES):
            last = start + PIECE_BYTES >= len(data)
            copies = tuple(sock.dup() for sock in socks) if last else ()
            self._append(_Unsent((_LAST if last else _MORE) + data[start : start + PIECE_BYTES], copies))

    def _append(self, unsent: _Unsent) -> None:
        """Send a packet now if there is room, else as soon as there is. Waking Trio costs more."""
        if not self._unsent:
            try:
                self._plain.sendmsg(*_parts(unsent))
            except OSError:
                pass  # no room; or the other end has gone, which `send_forever` tells
            else:
                _sent(unsent)
                return
        self._unsent.append(unsent)
        self._token.run_sync_soon(self._wake, idempotent=True)

    def _wake(self) -> None:
        self._posted.set()

    async def send_forever(self) -> None:
        """Send the posted messages until cancelled. Raises LinkError."""
        while True:
            while self._unsent:
                await self._send(self._unsent[0])
                _sent(self._unsent.popleft())
            self._posted = trio.Event()
            if not self._unsent:
                await self._posted.wait()

    async def _send(self, unsent: _Unsent) -> None:
        while True:
            try:
                await self._sock.sendmsg(*_parts(unsent))
            except OSError as error:
                if error.errno not in _TRANSIENT:
                    raise LinkError(error.strerror or str(error)) from None
                await trio.sleep(RETRY_S)
            else:
                return

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a packet is there."""
        return self._plain.fileno()

    async def receive(self) -> Received:
        """Return the next message. Raises LinkError."""
        await trio.lowlevel.checkpoint_if_cancelled()
        has_waited = False  # a wait lets other tasks run, and a second pass of Trio costs 0.1 ms
        while True:
            try:
                received = self.receive_packet()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._plain)
                has_waited = True
            else:
                if received is not None:
                    if not has_waited:
                        await trio.lowlevel.cancel_shielded_checkpoint()
                    return received

    def receive_packet(self) -> Received | None:
        """Take one packet; return the message that it ends, if any. Raises LinkError, and BlockingIOError if
        no packet is there.
        """
        try:
            packet, ancillary, _flags, _address = self._packet()
        except BlockingIOError:
            raise
        except OSError as error:
            raise LinkError(error.strerror or str(error)) from None
        if not packet:
            raise LinkError("it has ended")
        self._received += packet[1:]
        socks = list(_sockets(ancillary))
        if packet[:1] != _LAST:
            return None
        data, self._received = self._received, b""
        return Received(_decoded(data), socks)

    def _packet(self) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        """Return the result of `recvmsg`. Raises OSError.

        If the other end was closed with packets that it had not read, Linux reports ECONNRESET once, before
        the packets that are still here.
        """
        try:
            return self._plain.recvmsg(PIECE_BYTES + 1, _ANCILLARY_BYTES, _CLOEXEC)
        except ConnectionResetError:
            return self._plain.recvmsg(PIECE_BYTES + 1, _ANCILLARY_BYTES, _CLOEXEC)

    def end(self) -> None:
        """Tell the other end that nothing more comes; it can still send."""
        with suppress(OSError):  # the other end has closed already
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()
        while self._unsent:
            _sent(self._unsent.popleft())


def _parts(unsent: _Unsent) -> tuple[list[bytes], list[tuple[int, int, array.array[int]]]]:
    """Return the arguments of `sendmsg`."""
    fds = [sock.fileno() for sock in unsent.socks]
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    return [unsent.packet], ancillary


def _sent(packet: _Unsent) -> None:
    for sock in packet.socks:
        sock.close()


def _decoded(data: bytes) -> Message:
    try:
        return decoded(data)
    except msgspec.DecodeError as error:
        raise LinkError(str(error)) from None


_CLOEXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(SOCKETS_MAX * array.array("i").itemsize)


def _sockets(ancillary: list[tuple[int, int, bytes]]) -> Iterator[socket.socket]:
    """Yield the sockets that came with a packet. A descriptor that is no socket is closed."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds = array.array("i")
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
            for fd in fds:
                try:
                    yield socket.socket(fileno=fd)
                except OSError:
                    os.close(fd)
