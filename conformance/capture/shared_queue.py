"""A queue of events from the process that relays bytes to the process that writes the capture.

The bytes of connections are in shared memory, used as a ring. A pipe has a message per event, with the place
of its bytes: the kernel orders both, so no lock is needed. The sender never waits: without room in the memory
or the pipe, `put` refuses the event. Reports of the receiver (`writing`) tell which part is free again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from mmap import MAP_POPULATE, MAP_SHARED, mmap
from struct import Struct
from typing import Final

import msgspec

from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

_MESSAGE: Final = Struct("<BBxxxxxxQqQQ")
"""Format of a message: tag, side, connection, time (ns), place (bytes since the queue began) and size (bytes)
of the data.
"""
_OPENED, _BYTES, _CLOSED, _DROPPED = range(4)
SIZE_MIN: Final = 4096
"""Minimum size (bytes) of the memory: room for the addresses of a connection."""
PIPE_BYTES: Final = 1024 * 1024
"""Size (bytes) of the pipe: Linux allows this much without privileges."""


class QueueSender:
    """The end of the process that relays. Call its methods from one thread."""

    def __init__(self, size: int) -> None:
        """Make a queue with room for `size` bytes of connections, at least SIZE_MIN. Raises OSError."""
        self.size = max(SIZE_MIN, size)
        self.released = 0
        """Number of bytes since the queue began that the receiver no longer needs."""
        self._end = 0
        self.memory = os.memfd_create("weir-capture")
        """Descriptor of the shared memory, for the receiver."""
        try:
            os.ftruncate(self.memory, self.size)
            self._ring = memoryview(_mapped(self.memory, self.size))
        except BaseException:
            os.close(self.memory)
            raise
        self.messages, self._pipe = os.pipe()
        """Descriptor from which the receiver reads messages."""
        os.set_blocking(self._pipe, False)
        with suppress(OSError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def close_receiver(self) -> None:
        """Close this process's copies of the receiver's descriptors."""
        os.close(self.memory)
        os.close(self.messages)

    def close(self) -> None:
        """End the queue: the receiver finds the end behind the last event."""
        os.close(self._pipe)

    def release(self, place: int) -> None:
        """Note that the receiver no longer needs the bytes before this place. An empty queue continues at the
        start of the memory: a part that is used again and again stays in the processor's cache.
        """
        self.released = place
        if place == self._end:
            self._end = self.released = -(-place // self.size) * self.size

    def has_room(self, count: int) -> bool:
        """Return True if the memory takes `count` more bytes."""
        return self._end + count - self.released <= self.size

    def put(self, event: Opened | Closed | Dropped) -> bool:
        """Append an event; return False without room. Raises BrokenPipeError without a receiver."""
        match event:
            case Opened(number, time_ns):
                return self._put(_OPENED, 0, number, time_ns, memoryview(msgspec.msgpack.encode(event)))
            case Closed(number, time_ns, side):
                return self._send(_CLOSED, side, number, time_ns, 0)
            case Dropped(number, time_ns, side, count):
                return self._send(_DROPPED, side, number, time_ns, count)

    def put_bytes(self, connection: int, time_ns: int, side: Side, data: memoryview) -> bool:
        """Append bytes, which are copied, like `put`."""
        return self._put(_BYTES, side, connection, time_ns, data)

    def _put(self, tag: int, side: int, connection: int, time_ns: int, data: memoryview) -> bool:
        count = len(data)
        if not self.has_room(count):
            return False
        start = self._end % self.size
        fitting = min(count, self.size - start)
        self._ring[start : start + fitting] = data[:fitting]
        if fitting < count:
            rest = count - fitting
            self._ring[:rest] = data[fitting:]
        if not self._send(tag, side, connection, time_ns, count):
            return False
        self._end += count
        return True

    def _send(self, tag: int, side: int, connection: int, time_ns: int, size: int) -> bool:
        try:
            os.write(self._pipe, _MESSAGE.pack(tag, side, connection, time_ns, self._end, size))
        except BlockingIOError:
            return False
        return True


class QueueReceiver:
    """The end of the process that writes."""

    def __init__(self, memory: int, size: int, messages: int) -> None:
        """Receive from the sender with this memory, its size, and this pipe. Raises OSError."""
        self.released = 0
        """Number of bytes since the queue began that were copied from the memory."""
        self._size = size
        self._ring = memoryview(_mapped(memory, size))
        self._messages = messages

    def receive(self, *, wait: bool) -> Iterator[Event] | None:
        """Return the next events; None at the end of the queue. `wait`: False to return at once, even without
        events.
        """
        os.set_blocking(self._messages, wait)
        try:
            # A message is shorter than PIPE_BUF, so the pipe contains whole ones.
            data = os.read(self._messages, PIPE_BYTES // _MESSAGE.size * _MESSAGE.size)
        except BlockingIOError:
            return iter(())
        return self._events(data) if data else None

    def _events(self, data: bytes) -> Iterator[Event]:
        for tag, side, connection, time_ns, start, size in _MESSAGE.iter_unpack(data):
            if tag == _BYTES:
                yield Bytes(connection, time_ns, Side(side), self._copy(start, size))
            elif tag == _OPENED:
                yield msgspec.msgpack.decode(self._copy(start, size), type=Opened)
            elif tag == _CLOSED:
                yield Closed(connection, time_ns, Side(side))
            else:
                yield Dropped(connection, time_ns, Side(side), size)

    def _copy(self, place: int, count: int) -> bytes:
        start = place % self._size
        data = bytes(self._ring[start : start + count])
        if len(data) < count:
            rest = count - len(data)
            data += bytes(self._ring[:rest])
        self.released = place + count
        return data


def _mapped(memory: int, size: int) -> mmap:
    """Map all pages at once: a page fault would take as long as copying several pages."""
    return mmap(memory, size, flags=MAP_SHARED | MAP_POPULATE)
