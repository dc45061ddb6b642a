"""Scans a message that arrives in parts, a limited number of elements at a time.

An array element may have three bytes, and scanning it takes 0.4 microseconds. A scan of all elements of a
large message would delay other connections, so the caller limits the elements of each call.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from weir.protocol.scanning.field_scanner import Bytes, Chunks, Source, length_width
from weir.protocol.scanning.topic_names import NAME_BYTES_MAX

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot


class PausingScanner:
    """Scans one message's body chunk by chunk, and pauses where its caller asks.

    Subclasses set all attributes. A call of `super().__init__` would add 5 % to the time of a small request.
    """

    __slots__ = ("_chunks", "_left", "complete")

    complete: bool
    """True once the body has been fed up to the end of the last field that is scanned."""
    _left: list[int]
    """The list `allowed` of the scanning function (`PausingSource`)."""
    _chunks: Chunks

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest call of `feed` might still have visited."""
        return self._left[0]

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next and need not be fed."""
        return 0 if self.complete else self._chunks.skippable_bytes

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`."""
        self._chunks.skip(count)

    def feed(self, data: Bytes, start: int, stop: int, elements_max: int = sys.maxsize) -> int:
        """Scan the body's next bytes, `data[start:stop]`, up to `elements_max` array elements and tagged
        fields. Return the position behind the scanned bytes; the next call begins there. Raises
        ProtocolError for malformed bytes.
        """
        self._left[0] = elements_max
        if self.complete:
            return stop
        before = self._chunks.fed
        self.complete = self._chunks.feed(data, start, stop) is not None
        return start + self._chunks.fed - before


class PausingSource(Source):
    """Generates a scanning function that pauses when the elements are used up that its caller allows.

    `allowed`, a parameter of the generated function, is a list. `allowed[0]` is the number of elements that
    the function may visit before it pauses, set by the caller. The number is up to date whenever the function
    yields or returns.
    """

    def begin_element(self) -> None:
        """Add source that pauses if the caller allows no more elements. After a pause, one element is visited
        even if the caller allows none.
        """
        with self.block("if left <= 0:"):
            self.next_chunk()
        self.line("left -= 1")

    def next_chunk(self) -> None:
        """Add source that yields, and then reads the number of elements that may be visited."""
        self.line("allowed[0] = left")
        super().next_chunk()
        self.line("left = allowed[0]")

    def message(self, layout: Layout) -> None:
        """Add the scan of all fields of a message, including tagged fields."""
        self._struct(layout, layout.name)

    def begin(self) -> None:
        """Add source that sets the variables of the scan. It comes first in the function."""
        self.line("body = position = end = left = 0")

    def end(self) -> None:
        """Add source that waits for the bytes of all fields before, and ends the scan. It comes last."""
        self.await_skipped()
        self.line("allowed[0] = left")
        self.line("return position - body")

    def overwrite(self) -> None:
        """Add source that overwrites the next `n` bytes with the variable `cover`, followed by zeros."""
        with self.block("while n:"):
            self.need()
            self.line("size = min(n, end - position)")
            self.line("data[position:position + size] = cover[:size].ljust(size, b'\\0')")
            self.line("cover = cover[size:]")
            self.line("position += size")
            self.line("n -= size")

    def await_skipped(self) -> None:
        """Add source that waits for the bytes of all fields before."""
        self.flush()
        with self.block("while position > end:"):
            self.next_chunk()

    def keep_name(self, slot: Slot, path: str) -> None:
        """Add source that reads the name of a topic to the variable `name`, and refuses names longer than
        `NAME_BYTES_MAX`. Bytes of former names are not kept.
        """
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        if slot.nullable:
            with self.block("if n < 0:"):
                self.line("n = 0")
        self._refuse(f"n > {NAME_BYTES_MAX}", f"{path} is longer than a name can be")
        self.line("stop = position + n")
        with self.block("if stop <= end:"):
            self.line("name = bytes(data[position:stop])")
            self.line("position = stop")
        with self.block("else:"):
            self.collect("n")
            self.line("name = bytes(part)")

    def keep_id(self) -> None:
        """Add source that reads a topic id to the variable `topic_id`."""
        with self.block("if position + 16 <= end:"):
            self.line("topic_id = bytes(data[position:position + 16])")
            self.line("position += 16")
        with self.block("else:"):
            self.collect(16)
            self.line("topic_id = bytes(part)")

    def records_length(self, slot: Slot, path: str) -> None:
        """Add source that reads the number of bytes of records to the variable `n`; negative for null."""
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")

    def collect(self, size: int | str) -> None:
        """Add source that copies the next bytes to the variable `part`, although they continue in the next
        chunk. `size`: their number, or the variable that has it.
        """
        self.line("part = bytearray()")
        with self.block(f"while len(part) < {size}:"):
            self.need()
            self.line(f"stop = min(end, position + {size} - len(part))")
            self.line("part += data[position:stop]")
            self.line("position = stop")
