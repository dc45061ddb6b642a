"""Removes the records from a fetch response that arrives in parts.

A consumer over its quota gets the broker's response without records: with session id, errors, high
watermarks, aborted transactions and tagged fields. The records are never stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from weir.protocol.errors import ProtocolError, TooLargeError
from weir.protocol.messages import FetchResponse
from weir.protocol.scanning.field_offsets import layout
from weir.protocol.scanning.field_scanner import Bytes, Chunks, Stream, compiled, length_width
from weir.protocol.scanning.pausing_scanner import PausingScanner, PausingSource

if TYPE_CHECKING:
    from weir.protocol.schema import Slot

RemoveAll: TypeAlias = Callable[[Bytes, int, int, int, bytearray, int], int]
"""Function (data, body, end, elements_max, kept, kept_bytes_max) that appends the complete body
`data[body:end]` without its records to `kept`. Returns the number of elements that it might still have
visited; -1, with a part of the body appended, if there are more than `elements_max`. Raises TooLargeError if
`kept` would exceed `kept_bytes_max` (bytes), another ProtocolError for malformed bytes.
"""


class RecordsRemover(PausingScanner):
    """Copies the body of one fetch response chunk by chunk, with every `records` field emptied.

    A null `records` field stays null. All other bytes are copied, also bytes behind the last field.
    `complete` becomes True with the end of the body's last field, including tagged fields.
    """

    __slots__ = ("_kept_bytes_max", "_version", "kept")

    def __init__(self, version: int, *, kept_bytes_max: int, head: Bytes = b"") -> None:
        """Begin behind the bytes `head`, such as the response's header. `kept_bytes_max`: maximum size
        (bytes) of `head` and of the body without its records.

        Raises ValueError for a version that the schemas lack. The first remover of a version takes about 10
        ms, because its scanning function is generated and compiled.
        """
        self.complete = False
        self._version = version
        self._kept_bytes_max = kept_bytes_max
        self.kept = bytearray(head)
        """The head, and the bytes copied so far."""
        self._left = [0]
        self._chunks = Chunks(_remover(version)(self.kept, kept_bytes_max, self._left))

    def feed(self, data: Bytes, start: int, stop: int, elements_max: int = sys.maxsize) -> int:
        """Scan the next bytes of the body, `data[start:stop]`, as `PausingScanner.feed` does, and copy all of
        them but records.

        Raises TooLargeError if the copy would exceed `kept_bytes_max`, another ProtocolError for malformed
        bytes. After an error, every further call of `feed` or `body` raises ProtocolError.
        """
        if self.complete:
            if len(self.kept) + stop - start > self._kept_bytes_max:
                self.complete = False  # the scan has ended, so every further call fails
                _refuse(self._kept_bytes_max, self._version)
            self.kept += data[start:stop]
        return super().feed(data, start, stop, elements_max)

    def body(self) -> bytearray:
        """Return the head and the body without records. Raises ProtocolError if `complete` is False."""
        if not self.complete:
            reason = "the message ends too early, or is malformed"
            raise ProtocolError(reason, api=FetchResponse.__name__, version=self._version)
        return self.kept


def _refuse(kept_bytes_max: int, version: int) -> None:
    reason = f"more than {kept_bytes_max} bytes are left without the records"
    raise TooLargeError(reason, api=FetchResponse.__name__, version=version)


_LENGTH_BYTES_MAX: Final = 5
"""Maximum size (bytes) of a varint."""


class _RemovingSource(PausingSource):
    """Generates a scanning function that copies all bytes except records: a `Stream`, or a function for
    complete bodies, which returns -1 where a `Stream` pauses.

    In the generated source, `start` is the offset of the first byte that is not copied yet. While the scan
    skips records or their length, `start` is behind the skipped bytes. In a function for complete bodies,
    `start` is a position instead.
    """

    def begin_element(self) -> None:
        if self._when_short is None:
            super().begin_element()
            return
        with self.block("if left <= 0:"):
            self.line("return -1")
        self.line("left -= 1")

    def await_skipped(self) -> None:
        if self._when_short is None:
            super().await_skipped()
            return
        self.flush()
        with self.block("if position > end:"):
            self.line(self._when_short)

    def next_chunk(self) -> None:
        self.line("stop = position if position < end else end")
        self._keep("stop")
        with self.block("if start < stop - body:"):
            self.line("start = stop - body")
        super().next_chunk()

    def _keep(self, stop: str) -> None:
        """Add source that copies the bytes from `start` up to the position `stop`."""
        if self._when_short is not None:  # all bytes have arrived: the size is checked once, at the end
            self.line(f"kept += data[start:{stop}]")
            return
        with self.block(f"if body + start <= {stop}:"):
            with self.block(f"if len(kept) + {stop} - body - start > kept_bytes_max:"):
                self.line("refuse(kept_bytes_max)")
            self.line(f"kept += data[body + start:{stop}]")

    def _variable(self, slot: Slot, path: str) -> None:
        if slot.type == "records" and not slot.is_array:
            self._empty_records(slot, path)
        else:
            super()._variable(slot, path)

    def _empty_records(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self.need()
        self._keep("position")
        if self._when_short is None:
            self.line(f"start = position - body + {_LENGTH_BYTES_MAX}")
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        null, empty = (b"\0", b"\1") if width == 1 else (b"\xff" * width, b"\0" * width)
        self.line(f"kept += {null!r} if n < 0 else {empty!r}")
        with self.block("if n > 0:"):
            self.line("position += n")
        self.line("start = position - body" if self._when_short is None else "start = position")

    def copy_rest(self) -> None:
        """Add source that copies all bytes behind the last field that have arrived."""
        self._keep("end")


@cache
def _remover(version: int) -> Callable[[bytearray, int, list[int]], Stream]:
    source = _RemovingSource(layout(FetchResponse, version), when_short=None)
    with source.block("def stream(kept, kept_bytes_max, allowed):"):
        source.line("data = b''")
        source.line("start = 0")
        source.begin()
        _add_scan(source, version)
        source.end()
    return cast("Callable[[bytearray, int, list[int]], Stream]", _compiled(source, version, "stream"))


@cache
def whole_remover(version: int) -> RemoveAll:
    """Return the function that removes the records from a complete response (cached). It takes a third of the
    time of a `RecordsRemover`. Raises ValueError for a version that the schemas lack.
    """
    source = _RemovingSource(layout(FetchResponse, version), when_short="short(position - body, True)")
    with source.block("def locate(data, body, end, left, kept, kept_bytes_max):"):
        source.line("position = start = body")
        _add_scan(source, version)
        with source.block("if len(kept) > kept_bytes_max:"):
            source.line("refuse(kept_bytes_max)")
        source.line("return left")
    return cast(RemoveAll, _compiled(source, version, "locate"))


def _add_scan(source: _RemovingSource, version: int) -> None:
    source.message(layout(FetchResponse, version))
    source.await_skipped()
    source.copy_rest()


def _compiled(source: _RemovingSource, version: int, function: Literal["locate", "stream"]) -> object:
    def refuse(kept_bytes_max: int) -> None:
        _refuse(kept_bytes_max, version)

    return compiled(source, layout(FetchResponse, version), function, refuse=refuse)
