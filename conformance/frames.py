"""Cuts the bytes of one side of a connection into frames.

At most one incomplete frame is in memory. Of a frame longer than `FRAME_MAX` only the head is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from weir.protocol.framing import LENGTH, LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

FRAME_MAX: Final = 100 << 20
"""Maximum length (bytes) of a frame that is kept: the default of brokers' socket.request.max.bytes."""
HEAD_BYTES: Final = 64
"""Number of bytes kept of a longer frame."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame, with its length prefix."""

    data: bytes
    begun_ns: int
    """Time (ns) of the frame's first byte."""
    ended_ns: int
    """Time (ns) of its last byte."""
    whole: bool
    """False if `data` has only the frame's head."""


class LengthError(Exception):
    """Raised for a negative length, behind which no frame can be found."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length


class FrameCutter:
    """Cuts the bytes of one side into frames."""

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self._frame_max = frame_max
        self._buffer = bytearray()
        self._begun_ns = 0
        self._skipping = 0
        """Number of bytes to come of a frame that is longer than `frame_max`."""

    @property
    def incomplete(self) -> bytes:
        """The bytes of the incomplete frame that have arrived and are kept."""
        return bytes(self._buffer)

    @property
    def missing(self) -> int:
        """Number of bytes that the incomplete frame lacks; of its length if that is incomplete."""
        if len(self._buffer) < LENGTH_BYTES:
            return LENGTH_BYTES - len(self._buffer)
        return self._skipping or self._size(self._buffer, 0) - len(self._buffer)

    def feed(self, data: bytes, time_ns: int) -> Iterator[Frame]:
        """Take the next bytes, and return the frames that they complete. Raises LengthError."""
        if self._skipping:
            skipped = min(self._skipping, len(data))
            self._skipping -= skipped
            data = data[skipped:]
            if self._skipping:
                return
            yield self._head_only(time_ns)
        if self._buffer:
            data = yield from self._complete(data, time_ns)
        yield from self._cut(data, time_ns)

    def _complete(self, data: bytes, time_ns: int) -> Generator[Frame, None, bytes]:
        """Add bytes to the frame in the buffer; yield the frame, and return the bytes behind it."""
        missing = LENGTH_BYTES - len(self._buffer)
        if missing > 0:
            self._buffer += data[:missing]
            data = data[missing:]
            if len(self._buffer) < LENGTH_BYTES:
                return b""
        size = self._size(self._buffer, 0)
        missing = size - len(self._buffer)
        taken = min(missing, len(data))
        self._buffer += data[:taken] if taken < len(data) else data
        if taken < missing:
            self._bound(size)
            return b""
        frame = Frame(bytes(self._buffer), self._begun_ns, time_ns, whole=True)
        self._buffer = bytearray()
        yield frame
        return data[taken:]

    def _cut(self, data: bytes, time_ns: int) -> Iterator[Frame]:
        """Yield the frames in `data`; keep the bytes behind them."""
        position, end = 0, len(data)
        while end - position >= LENGTH_BYTES:
            size = self._size(data, position)
            if size > end - position:
                break
            yield Frame(data[position : position + size], time_ns, time_ns, whole=True)
            position += size
        if position < end:
            self._buffer += data[position:]
            self._begun_ns = time_ns
            if end - position >= LENGTH_BYTES:
                self._bound(self._size(data, position))

    def _size(self, data: bytes | bytearray, position: int) -> int:
        """Return the size (bytes) of the frame at `position`, with its prefix."""
        length: int = LENGTH.unpack_from(data, position)[0]
        if length < 0:
            raise LengthError(length)
        return LENGTH_BYTES + length

    def _bound(self, size: int) -> None:
        """Stop keeping the incomplete frame if it is too long."""
        if size > self._frame_max and len(self._buffer) >= HEAD_BYTES:
            self._skipping = size - len(self._buffer)
            del self._buffer[HEAD_BYTES:]

    def _head_only(self, time_ns: int) -> Frame:
        frame = Frame(bytes(self._buffer), self._begun_ns, time_ns, whole=False)
        self._buffer = bytearray()
        return frame
