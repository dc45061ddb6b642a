"""Finds a field in complete bodies that often have the same shape as a former body.

A scan reads only some bytes of a body: lengths, counts and tags. If a body is as long as a former one, and
all bytes that the scan has read there are the same, then the scan would take the same way: the field is at
the same offset. One `Struct` compares these bytes. In a small produce response, only offsets and times
change: it needs a sixth of the scan's time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import takewhile
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from weir.protocol.framing import INCOMPLETE
from weir.protocol.scanning.field_offsets import FieldOffset, layout
from weir.protocol.scanning.field_scanner import Bytes, Source, compiled

if TYPE_CHECKING:
    from weir.protocol.schema import Slot

SHAPE_BYTES_MAX: Final = 1024
"""Maximum length (bytes) of a body whose shape is kept. So at most as many shapes are kept per version of a
message, and each compares at most as many bytes.
"""


class FieldFinder:
    """Finds one field in complete bodies of one version of a message."""

    __slots__ = ("_left", "_locate", "_reads", "_shapes", "field")

    def __init__(self, offset: FieldOffset) -> None:
        """Begin without shapes of bodies; `offset` is the field's. Raises ValueError if the field is found
        without a scan.
        """
        if offset.fixed_offset is not None or offset.offset_from_end is not None:
            raise ValueError(f"{offset.message}.{offset.field} is at a fixed distance")
        self.field = offset.field
        """Name of the field in the schema; "" for the tagged fields."""
        self._left = [0]
        """The list `allowed` of the scanning function (`_BoundedSource`)."""
        self._locate = _bounded(offset)
        self._reads = _reads(offset)
        self._shapes: dict[int, _Shape | None] = {}
        """Shape of the latest body of each length (bytes); None if only one body has had this length, because
        few bodies with records have the length of another.
        """

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest scan might still have visited."""
        return self._left[0]

    def find(self, data: Bytes, body: int, end: int, elements_max: int = sys.maxsize) -> int:
        """Return the position of the field in `data`; the body is `data[body:end]`. Return INCOMPLETE if more
        than `elements_max` array elements and tagged fields are before the field, unless the body has a known
        shape. Raises ProtocolError if the body is malformed before the field.
        """
        shape = self._shapes.get(end - body)
        if shape is not None and shape.unpack(data, body) == shape.read:
            return body + shape.offset
        self._left[0] = elements_max
        position = self._locate(data, body, end, self._left)
        if end - body <= SHAPE_BYTES_MAX and position != INCOMPLETE:
            self._remember(data, body, end, position - body)
        return position

    def _remember(self, data: Bytes, body: int, end: int, offset: int) -> None:
        shapes, length = self._shapes, end - body
        if length not in shapes:
            shapes[length] = None
        elif shapes[length] is None:
            shapes[length] = _Shape(data, body, self._reads(data, body, end), offset)
        else:  # bodies of several shapes have this length
            del shapes[length]


class _Shape:
    """The bytes of a body that decide where a field is."""

    __slots__ = ("offset", "read", "unpack")

    def __init__(self, data: Bytes, body: int, positions: list[int], offset: int) -> None:
        """Keep the bytes at these positions in `data`; `offset` is the field's offset (bytes) in the body."""
        self.offset = offset
        """Number of bytes from the body's start to the field."""
        self.unpack = Struct(_format([position - body for position in positions])).unpack_from
        self.read = self.unpack(data, body)
        """Bytes that the scan has read, one item for each run of successive bytes."""


def _format(offsets: list[int]) -> str:
    """Return the format of a `Struct` that unpacks the bytes at these ascending offsets.

    >>> _format([0, 1, 5])
    '0x2s3x1s'
    """
    runs: list[list[int]] = []  # first offset, and the offset behind the last
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1][1] += 1
        else:
            runs.append([offset, offset + 1])
    starts = [0, *(stop for _, stop in runs)]
    return "".join(
        f"{first - start}x{stop - first}s" for start, (first, stop) in zip(starts, runs, strict=False)
    )


class _BoundedSource(Source):
    """Generates a function that finds a field in a complete body, if few elements are before the field.

    `allowed`, a parameter of the generated function, is a list. `allowed[0]` is the number of elements that
    the function may visit, and afterwards the number that it might still have visited.
    """

    def begin_elements(self) -> None:
        self.line("left -= n")
        with self.block("if left < 0:"):
            self.line(f"return {INCOMPLETE}")


@cache
def _bounded(offset: FieldOffset) -> Callable[[Bytes, int, int, list[int]], int]:
    found = layout(offset.message, offset.version)
    source = _BoundedSource(found, when_short="short(position - body, True)")
    with source.block("def locate(data, body, end, allowed):"):
        source.line("left, allowed[0] = allowed[0], 0")
        source.line("position = body")
        source.fields(_fields_before(offset), found.name)
        source.flush()
        source.need()
        source.line("allowed[0] = left")
        source.line("return position")
    return cast("Callable[[Bytes, int, int, list[int]], int]", compiled(source, found, "locate"))


def _fields_before(offset: FieldOffset) -> Iterable[Slot]:
    slots = layout(offset.message, offset.version).fields
    return takewhile(lambda slot: slot.name != offset.field, slots)


class _ReadsSource(Source):
    """Generates a function that collects the positions of the bytes that a scan reads."""

    def _byte(self, name: str) -> None:
        super()._byte(name)
        self.line("read.append(position - 1)")

    def _whole_integer(self, width: int) -> None:
        self.line(f"read.extend(range(position, position + {width}))")
        super()._whole_integer(width)


@cache
def _reads(offset: FieldOffset) -> Callable[[Bytes, int, int], list[int]]:
    """Return a function that returns the positions of the bytes that are read to find a field in a body."""
    found = layout(offset.message, offset.version)
    source = _ReadsSource(found, when_short="return read")
    with source.block("def locate(data, body, end):"):
        source.line("position, read = body, []")
        source.fields(_fields_before(offset), found.name)
        source.line("return read")
    return cast("Callable[[Bytes, int, int], list[int]]", compiled(source, found, "locate"))
