"""An in-memory network: pipes with bounded buffers, sockets for a relay, a poll set over them.

Reads and writes are cut at random, as a kernel may cut them; readiness is level-triggered, as epoll's.
"""

from __future__ import annotations

import errno
import itertools
import socket
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from weir.proxy.net.poll import BROKEN, READ, WRITE

READ_ENDED: Final = 0x2000  # EPOLLRDHUP: reported if asked for, also while there is something to read
FIRST_FD: Final = 1 << 20
"""Smaller descriptors are the kernel's, and nobody watches those."""


class Pipe:
    """One direction of a connection. The stream is never thrown away: checks look at it."""

    __slots__ = ("accepted", "capacity", "ended", "full_ms", "gone", "heads", "read", "reset", "stream")

    def __init__(self, capacity: int) -> None:
        self.stream = bytearray()
        """All that the writer has wanted to send."""
        self.accepted = 0
        """Number of its bytes that the kernel has taken from the writer."""
        self.read = 0
        """Number of its bytes that the reader has taken from the kernel."""
        self.capacity = capacity
        """Number of bytes that may be accepted and not read."""
        self.ended = False
        """True once the writer sends nothing behind the stream."""
        self.gone = False
        """True once the reader has closed its socket."""
        self.reset = False
        """True once the connection was reset: what was accepted can still be read, as on Linux."""
        self.full_ms = 0
        """Time (ms) at which the reader last made room that the writer has waited for."""
        self.heads: dict[int, int] = {}
        """Stretches that arrive in one piece: offset within one -> offset of its beginning."""

    @property
    def waiting(self) -> int:
        return self.accepted - self.read

    def accept(self) -> None:
        end = min(len(self.stream), self.read + self.capacity)
        self.accepted = max(self.accepted, self.heads.get(end, end))

    def take(self, count: int, now_ms: int) -> None:
        """Read as one end of the connection does, not as a relay."""
        if self.accepted < len(self.stream):
            self.full_ms = now_ms
        self.read += count


class Net:
    """A poll set (`proxy.net.poll.PollSet`), and all sockets that are open."""

    def __init__(self, rng: Random, fail: Callable[[str, str], None]) -> None:
        self.fds = itertools.count(FIRST_FD)
        self.sockets: dict[int, FakeSocket] = {}
        self.watched: dict[int, int] = {}
        self.fail = fail
        self.moves = 0
        """Number of operations that have changed anything."""
        self._rng = rng
        self._ready: list[tuple[int, int]] = []

    def look(self) -> bool:
        """Find out which sockets are ready, for the next poll; return whether any is."""
        sockets = self.sockets
        found = [(fd, sockets[fd].events() & (mask | BROKEN)) for fd, mask in self.watched.items()]
        self._ready = [pair for pair in found if pair[1]]
        self._rng.shuffle(self._ready)
        return bool(self._ready)

    def register(self, fd: int, eventmask: int) -> None:
        if fd >= FIRST_FD:
            self.watched[fd] = eventmask

    def modify(self, fd: int, eventmask: int) -> None:
        self.moves += self.watched[fd] != eventmask
        self.watched[fd] = eventmask

    def unregister(self, fd: int) -> None:
        if fd >= FIRST_FD:
            del self.watched[fd]

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        del timeout, maxevents
        return self._ready

    def fileno(self) -> int:
        raise NotImplementedError  # no driver waits for it

    def close(self) -> None:
        pass


class FakeSocket:
    """A relay's end of a connection; see `proxy.net.side.Socket`."""

    def __init__(
        self, net: Net, inward: Pipe, outward: Pipe, rng: Random | None, observe: Callable[[], None]
    ) -> None:
        """`rng` cuts reads and writes, None: nothing does; `observe` is called when the stream of `outward`
        has grown, even if none of that was accepted.
        """
        self._net, self._inward, self._outward, self._rng, self._observe = net, inward, outward, rng, observe
        self._fd = next(net.fds)
        net.sockets[self._fd] = self

    def fileno(self) -> int:
        return self._fd

    def events(self) -> int:
        inward, outward = self._inward, self._outward
        if inward.reset:
            return READ | WRITE | BROKEN
        has_ended = inward.ended and inward.accepted == len(inward.stream)
        events = (READ if inward.waiting or has_ended else 0) | (READ_ENDED if has_ended else 0)
        return events | (WRITE if outward.waiting < outward.capacity else 0)

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        pipe = self._inward
        count = self._cut(min(self._readable(), nbytes or len(buffer), len(buffer)))
        while pipe.read + count in pipe.heads and count < len(buffer):
            count += 1
        buffer[:count] = pipe.stream[pipe.read : pipe.read + count]
        pipe.read += count
        self._net.moves += 1
        return count

    def recv(self, bufsize: int, flags: int, /) -> bytes:
        assert flags == socket.MSG_PEEK
        count = min(self._readable(), bufsize)
        return bytes(self._inward.stream[self._inward.read :][:count])

    def _readable(self) -> int:
        """Return how many bytes can be read; 0 at the end."""
        pipe = self._inward
        if not pipe.waiting and pipe.reset:
            raise ConnectionResetError(errno.ECONNRESET, "the peer has reset the connection")
        if not pipe.waiting and not (pipe.ended and pipe.read == len(pipe.stream)):
            raise BlockingIOError
        return pipe.waiting

    def send(self, data: memoryview | bytes, /) -> int:
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[memoryview | bytes], /) -> int:
        """Send some, but show all of it to the observer."""
        pipe, data = self._outward, b"".join(buffers)
        begin = pipe.accepted
        if len(data) > len(pipe.stream) - begin:
            pipe.stream += memoryview(data)[len(pipe.stream) - begin :]
            self._observe()
        if pipe.reset:
            raise BrokenPipeError(errno.EPIPE, "the peer has reset the connection")
        self._net.moves += 1
        if pipe.gone:  # the peer's kernel answers with RST
            pipe.reset = self._inward.reset = True
            pipe.accepted += len(data)
            return len(data)
        count = self._cut(min(len(data), pipe.capacity - pipe.waiting))
        if not count:
            self._net.moves -= 1
            raise BlockingIOError
        if pipe.stream[begin : begin + count] != data[:count]:
            self._net.fail("bytes", f"what was left unsent at byte {begin} was sent as something else")
        pipe.accepted += count
        return count

    def shutdown(self, how: int, /) -> None:
        assert how == socket.SHUT_WR
        if self._inward.reset:
            raise OSError(errno.ENOTCONN, "the peer has reset the connection")
        self._outward.ended = True

    def close(self) -> None:
        if self._net.sockets.pop(self._fd, None) is None or self._fd in self._net.watched:
            self._net.fail("leaks", "a socket was closed twice, or is registered still")
        self._inward.gone = self._outward.ended = True
        del self._outward.stream[self._outward.accepted :]

    def _cut(self, count: int) -> int:
        if self._rng is None or count < 2 or self._rng.random() < 0.5:
            return count
        return min(count, 1 + int(self._rng.random() ** 4 * 20_000))
