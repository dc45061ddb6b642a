"""Edits of frames that arrive in parts: bytes are replaced, sizes stay.

A `FrameStream` cuts the bytes of one side of a connection into frames and asks for the edit of each frame
when its head has arrived. Memory is bounded: only heads and frames for `Whole` are held until they are
complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from weir.conformance.capture.records_blanking import RecordsBlanking
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH, LENGTH_BYTES

FILLER: Final = b"x"
HEADER_BYTES_MAX: Final = 64 * 1024
"""Maximum size (bytes) of a request's or response's header that is held until it is complete."""


class Edit(Protocol):
    """The edit of one frame."""

    def feed(self, part: bytearray, *, is_last: bool) -> bytes | bytearray:
        """Take the next bytes of the frame, the first time with its length prefix; return the bytes that are
        ready, edited. `is_last`: True if the frame ends with this part.
        """

    def cut(self) -> bytes | bytearray:
        """Return the bytes that are held, edited, because the frame will not be complete."""


class Passed:
    """No change."""

    def feed(self, part: bytearray, *, is_last: bool) -> bytes | bytearray:  # noqa: ARG002  # an Edit
        return part

    def cut(self) -> bytes:
        """Return nothing: no bytes are held."""
        return b""


class Filled:
    """All bytes but the first ones are replaced by filler."""

    def __init__(self, kept: int) -> None:
        """Keep the first `kept` bytes of the frame."""
        self._kept = kept

    def feed(self, part: bytearray, *, is_last: bool) -> bytes | bytearray:  # noqa: ARG002  # an Edit
        """Return the part with filler."""
        fill(part, self._kept, len(part))
        self._kept = max(0, self._kept - len(part))
        return part

    def cut(self) -> bytes:
        """Return nothing: no bytes are held."""
        return b""


class Whole:
    """A function edits the complete frame in place."""

    def __init__(self, edit: Callable[[bytearray], None], kept: int) -> None:
        """Call `edit` with the frame; if it stays incomplete, keep only its first `kept` bytes."""
        self._edit = edit
        self._kept = kept
        self._frame = bytearray()

    def feed(self, part: bytearray, *, is_last: bool) -> bytes | bytearray:
        """Return the frame at its end, before that nothing."""
        self._frame += part
        if not is_last:
            return b""
        self._edit(self._frame)
        return self._frame

    def cut(self) -> bytes | bytearray:
        """Return the incomplete frame with filler."""
        fill(self._frame, self._kept, len(self._frame))
        return self._frame


class Blanked:
    """The payloads of the frame's records become zeros."""

    def __init__(self, find_body: Callable[[bytearray, int], int], records: RecordsBlanking) -> None:
        """Find the body with `find_body(frame, end)`, which returns its position or INCOMPLETE, or raises
        ProtocolError.
        """
        self._find_body = find_body
        self._records = records
        self._header = bytearray()
        self._in_body = False

    def feed(self, part: bytearray, *, is_last: bool) -> bytes | bytearray:
        """Return the part with zeros; nothing while the header is incomplete."""
        if self._in_body:
            self._records.feed(part, 0, len(part))
            return part
        self._header += part
        try:
            body, is_malformed = self._find_body(self._header, len(self._header)), False
        except ProtocolError:
            body, is_malformed = INCOMPLETE, True
        if body == INCOMPLETE and not (is_malformed or is_last or len(self._header) > HEADER_BYTES_MAX):
            return b""
        self._in_body, held = True, self._header
        if body == INCOMPLETE:
            fill(held, min(LENGTH_BYTES, len(held)), len(held))
            self._records.give_up()
        else:
            self._records.feed(held, body, len(held))
        return held

    def cut(self) -> bytes | bytearray:
        """Return the incomplete header with filler."""
        if self._in_body:
            return b""
        fill(self._header, LENGTH_BYTES, len(self._header))
        return self._header


Begin: TypeAlias = Callable[[bytearray, int], Edit]
"""Function (head, length) that returns the edit of a frame. `head` is the first bytes of the frame with its
length prefix: as many as the stream holds, fewer only if the frame is shorter.
"""


class FrameStream:
    """The frames of one side of a connection."""

    def __init__(self, head_bytes: int, begin: Begin) -> None:
        """Begin at the start of a frame; hold the first `head_bytes` of each frame until `begin` is
        called.
        """
        self._head_bytes = head_bytes
        self._begin = begin
        self._head = bytearray()
        self._edit: Edit | None = None
        """Edit of the frame whose head has arrived; None between frames."""
        self._left = 0
        """Number of bytes of that frame that have not arrived."""
        self._lost = False
        """True after a negative length: no further frame can be found."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are ready, edited: all that were fed, in order, except those that are
        held.
        """
        if type(self._edit) is Passed and len(data) < self._left:
            self._left -= len(data)
            return data
        ready, position = bytearray(), 0
        while position < len(data):
            if self._lost:
                ready += FILLER * (len(data) - position)
                break
            if self._edit is None:
                position = self._take_head(data, position, ready)
            else:
                stop = min(position + self._left, len(data))
                self._pass(bytearray(data[position:stop]), ready)
                position = stop
        return bytes(ready)

    def cut(self) -> bytes:
        """Return the bytes that are held, edited, because no more bytes come."""
        held = self._head if self._edit is None else bytearray(self._edit.cut())
        if self._edit is None:
            fill(held, LENGTH_BYTES, len(held))
        self._head, self._edit = bytearray(), None
        return bytes(held)

    def _take_head(self, data: bytes, position: int, ready: bytearray) -> int:
        """Add bytes from `position` to the head; if it is complete, begin the frame. Return the new
        position.
        """
        head = self._head
        for wanted in (LENGTH_BYTES, self._head_bytes):
            if wanted > LENGTH_BYTES:
                wanted = min(wanted, LENGTH_BYTES + LENGTH.unpack_from(head)[0])
            stop = position + max(0, wanted - len(head))
            head += data[position:stop]
            position = min(stop, len(data))
            if len(head) < wanted:
                return position
            if LENGTH.unpack_from(head)[0] < 0:
                self._lost = True
                ready += head
                self._head = bytearray()
                return position
        (length,) = LENGTH.unpack_from(head)
        self._edit = self._begin(head, length)
        self._head, self._left = bytearray(), LENGTH_BYTES + length
        self._pass(head, ready)
        return position

    def _pass(self, part: bytearray, ready: bytearray) -> None:
        assert self._edit is not None
        self._left -= len(part)
        ready += self._edit.feed(part, is_last=not self._left)
        if not self._left:
            self._edit = None


def fill(data: bytearray, start: int, stop: int) -> None:
    """Replace data[start:stop] by filler."""
    if start < stop:
        data[start:stop] = FILLER * (stop - start)
