"""Scanning functions, which find a field without decoding the fields before it.

Each (message, version, field) has a Python function of its own, generated from the layout. Runs of fixed-size
fields become one addition, and arrays of fixed-size elements one multiplication. Lengths of one byte, the
usual ones, need no call. There are two kinds of functions, which differ at the end of the bytes that have
arrived:

- `Locate` needs all bytes from the body's start to the field, and otherwise returns INCOMPLETE;
- `Stream` is a generator that waits for the next chunk. The generator's state contains the position in the
  message, so that former chunks need not be stored.

Both take time linear in the number of bytes, whatever count a peer sends: an array's elements are visited
only while their bytes have arrived. Impossible lengths raise ProtocolError with the field's path and its
offset in the body. Payloads are not checked: a string that is not UTF-8 passes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE

if TYPE_CHECKING:
    from weir.protocol.schema import Layout, Slot

Bytes: TypeAlias = bytes | bytearray
Locate: TypeAlias = Callable[[Bytes, int, int, bool], int]
"""Function that returns the position of a field in `data`, or INCOMPLETE if bytes before the field have not
arrived; `field_offsets.FieldOffset.locate` describes the parameters.
"""
Stream: TypeAlias = Generator[int, tuple[Bytes, int, int], int]
"""Generator that scans a body chunk by chunk. It yields the offset in the body at which it needs more bytes.
It is then sent (data, position of the body's start in `data`, end of the bytes); the position is negative or
before the chunk if the body started in a former chunk. It returns the offset that it searches for.
"""

SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
"""Size (bytes) of each fixed-size primitive."""
LENGTH_MAX: Final = 2**31 - 1
"""Maximum of a varint length: the maximum length (bytes) of a frame."""


def fixed_size(slots: Iterable[Slot], *, flexible: bool = False) -> int | None:
    """Return the total size (bytes) of these fields; None if it varies. `flexible`: True if tagged fields
    follow.
    """
    sizes = [_fixed_size(slot) for slot in slots]
    known = [size for size in sizes if size is not None]
    return None if flexible or len(known) < len(sizes) else sum(known)


def _fixed_size(slot: Slot) -> int | None:
    return None if slot.is_array or (slot.struct and slot.nullable) else _element_size(slot)


def _element_size(slot: Slot) -> int | None:
    """Return the size (bytes) of a field that is not null (for an array, of each element); None if the size
    varies.
    """
    if slot.struct is None:
        return SIZES.get(slot.type)
    return fixed_size(slot.struct.fields, flexible=slot.struct.flexible)


def least_size(slot: Slot) -> int:
    """Return the smallest size (bytes) of a field."""
    if slot.is_array:
        return length_width(slot)
    return 1 if slot.struct and slot.nullable else _element_least_size(slot)


def _element_least_size(slot: Slot) -> int:
    if slot.struct is not None:
        return sum(map(least_size, slot.struct.fields)) + slot.struct.flexible
    return SIZES.get(slot.type) or length_width(slot, element=True)


def length_width(slot: Slot, *, element: bool = False) -> int:
    """Return the size (bytes) of the number at a field's start: the length of a string or bytes, or the count
    of an array. Return 1 for a varint. `element`: True for the length of each element of an array.
    """
    if slot.compact:
        return 1
    return 2 if slot.type == "string" and (element or not slot.is_array) else 4


def locator(layout: Layout, fields: tuple[Slot, ...], size: int) -> Locate:
    """Return a compiled function that finds the position behind `fields`, the first fields of `layout`. The
    function returns INCOMPLETE until `size` bytes at that position have arrived.
    """
    source = Source(layout, when_short="return short(position - body, complete)")
    with source.block("def locate(data, body, end, complete):"):
        source.line("position = body")
        source.fields(fields, layout.name)
        source.flush()
        source.need(size)
        source.line("return position")
    return cast(Locate, compiled(source, layout, "locate"))


class Chunks:
    """Feeds a message's body to a `Stream` in chunks, each once and in order."""

    __slots__ = ("_fed", "_needed", "_stream")

    def __init__(self, stream: Stream) -> None:
        """Start `stream`, which must not have been started."""
        next(stream)  # run up to the wait for the first chunk
        self._stream = stream
        self._fed = 0
        self._needed = 0
        """Offset of the next byte that the stream reads; it is behind the fed bytes within a string or
        records.
        """

    @property
    def fed(self) -> int:
        """Offset in the body from which the next bytes are to be fed."""
        return self._fed

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next and that the stream does not read."""
        return max(self._needed - self._fed, 0)

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`, which are not fed."""
        self._fed += count

    def feed(self, data: Bytes, start: int, stop: int) -> int | None:
        """Scan the next bytes of the body, `data[start:stop]`; return the offset that the stream searches
        for, or None if it is not found yet. Do not call this again after an offset was returned. Raises
        ProtocolError for malformed bytes, and at every call after that.

        A stream may pause before `stop`: `fed` then has the offset of the next bytes to feed.
        """
        body = start - self._fed
        self._fed += stop - start
        try:
            offset = self._needed = self._stream.send((data, body, stop))
            if offset < self._fed:
                self._fed = offset
        except StopIteration as end:
            if end.value is None:  # it has failed before
                raise ProtocolError("the message was malformed before") from None
            found: int = end.value
            return found
        return None


def compiled(
    source: Source, layout: Layout, function: Literal["locate", "stream"], **functions: Callable[..., object]
) -> object:
    """Compile the generated source; return its function `function`. `functions`: further functions that the
    source calls, by name. (Executing the source is safe: from the schema it contains only numbers and names.)
    """

    def fail(offset: int, problem: str) -> None:
        raise ProtocolError(problem, api=layout.name, version=layout.version, offset=offset)

    def short(offset: int, complete: bool) -> int:
        if complete:
            fail(offset, "the message ends too early")
        return INCOMPLETE

    names: dict[str, object] = {
        "fail": fail,
        "short": short,
        "int16": Struct(">h").unpack_from,
        "int32": Struct(">i").unpack_from,
        **functions,
    }
    code = compile(source.text(), f"<{function} {layout.name} v{layout.version}>", "exec")
    exec(code, names)  # noqa: S102 - the source is generated here
    return names[function]


class Source:
    """Generates the source of one scanning function, which finds the end of certain fields. Functions of
    subclasses also collect values.

    In the generated source, `position` is the current position in `data`, `n` the last length or count read.
    The skip of a field may move `position` behind `end`; so each read is preceded by a check (`need`).
    """

    def __init__(self, layout: Layout, *, when_short: str | None) -> None:
        """Begin with empty source. `when_short`: statement that the generated function executes if the bytes
        end too early; None to generate a `Stream`, which waits for the next chunk.
        """
        self._as_a_broker = layout.name.endswith("Request")
        """True if the generated function reads lengths like a broker (`primitives.AS_A_BROKER`), so that Weir
        accepts all requests that a broker accepts. False for responses.
        """
        self._when_short = when_short
        self._lines: list[str] = []
        self._margin = ""
        self._pending = 0
        """Total size (bytes) of the fixed-size fields that the next generated line will skip."""

    def text(self) -> str:
        """Return the source of the scanning function, as generated so far."""
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        """Add one line of source with the current indentation."""
        self._lines.append(self._margin + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add the source line `head`, such as `if n > 0:`, and indent the lines that are added within this
        context.
        """
        self.line(head)
        outer, self._margin = self._margin, self._margin + "    "
        yield
        self._margin = outer

    def flush(self) -> None:
        """Add a source line that skips the fixed-size fields collected since the last `flush`."""
        if self._pending:
            self.line(f"position += {self._pending}")
            self._pending = 0

    def need(self, count: int = 1) -> None:
        """Add source that checks that the next `count` bytes have arrived. In a `Stream`, the source waits
        until the next byte has arrived.
        """
        if self._when_short is not None:
            self.line(f"if position + {count} > end:" if count > 1 else "if position >= end:")
            self.line(f"    {self._when_short}")
        else:
            with self.block("while position >= end:"):
                self.next_chunk()

    def next_chunk(self) -> None:
        """Add source that yields and thereby waits for the next chunk."""
        self.line("position -= body")
        self.line("data, body, end = yield position")
        self.line("position += body")

    def begin_element(self) -> None:
        """Add source that runs before each element of an array, and before each tagged field."""

    def begin_elements(self) -> None:
        """Add source that runs before the `n` elements of an array, and before `n` tagged fields."""

    def reads(self, slot: Slot) -> bool:
        """Return True for a field of fixed size that is not skipped: `_variable` gets it as well."""
        del slot
        return False

    def fields(self, slots: Iterable[Slot], path: str) -> None:
        """Add source that scans these fields."""
        for slot in slots:
            size = None if self.reads(slot) else _fixed_size(slot)
            if size is None:
                self.flush()
                self._variable(slot, f"{path}.{slot.name}")
            else:
                self._pending += size

    def _variable(self, slot: Slot, path: str) -> None:
        """Add source that scans a field whose size varies. All fields before it have been skipped."""
        if slot.is_array:
            self._array(slot, path)
        elif slot.struct is None:
            self._payload(length_width(slot), path, nullable=slot.nullable)
        elif slot.nullable:  # an int8 before the struct: negative is null
            self._byte("n")
            with self.block("if n < 128:"):
                self._struct(slot.struct, path)
        else:
            self._struct(slot.struct, path)

    def _struct(self, layout: Layout, path: str) -> None:
        """Add source that scans all fields of a struct, including tagged fields."""
        self.fields(layout.fields, path)
        self.flush()
        if layout.flexible:
            self._tags(path)
        elif not layout.fields:
            self.line("pass")

    def _payload(self, width: int, path: str, *, nullable: bool) -> None:
        """Add source that skips a string, bytes or records: a length, then as many bytes."""
        self._length(width, path, nullable=nullable)
        less = 1 if width == 1 else 0
        with self.block(f"if n > {less}:"):
            self.line("position += n - 1" if less else "position += n")

    def _array(self, slot: Slot, path: str) -> None:
        width = length_width(slot)
        self._length(width, path, nullable=slot.nullable)
        if width == 1:
            self.line("n -= 1")
        with self.block("if n > 0:"):
            size = _element_size(slot)
            if size is None:
                self._elements(slot, path)
            else:
                self.line(f"position += n * {size}")

    def _elements(self, slot: Slot, path: str) -> None:
        if self._when_short is not None:  # a `Locate` needs all elements
            with self.block(f"if n * {_element_least_size(slot)} > end - position:"):
                self.line(self._when_short)
        self.begin_elements()
        with self.block("for _ in range(n):"):
            self.begin_element()
            if slot.struct is None:
                self._payload(length_width(slot, element=True), path, nullable=False)
            else:
                self._struct(slot.struct, path)

    def _tags(self, path: str) -> None:
        """Add source that skips tagged fields (KIP-482): a count, then per field its tag, size and bytes."""
        path += " (tagged fields)"
        self._varint(path)
        if self._as_a_broker:
            with self.block(f"if n > {LENGTH_MAX}:"):
                self.line("n = 0")
        with self.block("if n:"):  # no range for the usual 0
            self.begin_elements()
            with self.block("for _ in range(n):"):
                self.begin_element()
                self._tag(path)

    def _tag(self, path: str) -> None:
        """Add source that skips one tagged field."""
        self._varint(path)
        self._varint(path)
        if self._as_a_broker:
            self._refuse(f"n > {LENGTH_MAX}", f"{path} claims more than a message can hold")
        self.line("position += n")

    def _length(self, width: int, path: str, *, nullable: bool) -> None:
        """Add source that reads a length or count to the variable `n`. A varint (`width` 1) is the length
        plus one, and 0 for null.
        """
        if width == 1:
            self._varint(path)
            if self._as_a_broker:
                self._wrap_length(path)
            if not nullable:
                self._refuse("n == 0", f"{path} is null, which it must not be")
        else:
            self._integer(width)
            if not (nullable and self._as_a_broker):
                self._refuse("n < -1" if nullable else "n < 0", f"{path} has a negative length")

    def _wrap_length(self, path: str) -> None:
        """Add source that treats varints above 31 bits like a broker: as negative lengths, which mean null.
        The smallest negative number minus one wraps around to the largest length, which is refused.
        """
        with self.block(f"if n > {LENGTH_MAX}:"):
            self._refuse(f"n == {LENGTH_MAX + 1}", f"{path} claims more than a message can hold")
            self.line("n = 0")

    def _refuse(self, condition: str, problem: str) -> None:
        with self.block(condition if condition == "else:" else f"if {condition}:"):
            self.line(f"fail(position - body, {problem!r})")

    def _byte(self, name: str) -> None:
        self.need()
        self.line(f"{name} = data[position]")
        self.line("position += 1")

    def _integer(self, width: int) -> None:
        """Add source that reads a signed integer of `width` bytes to the variable `n`."""
        if self._when_short is not None:
            self.need(width)
            self._whole_integer(width)
            return
        with self.block(f"if position + {width} <= end:"):
            self._whole_integer(width)
        with self.block("else:"):  # the integer continues in the next chunk
            self.line("n = 0")
            with self.block(f"for _ in range({width}):"):
                self._byte("byte")
                self.line("n = n << 8 | byte")
            self.line(f"n -= n >> {8 * width - 1} << {8 * width}")

    def _whole_integer(self, width: int) -> None:
        self.line(f"n = int{8 * width}(data, position)[0]")
        self.line(f"position += {width}")

    def _varint(self, path: str) -> None:
        self._byte("n")
        with self.block("if n > 127:"):
            self.line("n &= 127")
            with self.block("for shift in (7, 14, 21, 28):"):
                self._byte("byte")
                self.line("n |= (byte & 127) << shift")
                with self.block("if byte < 128:"):
                    self.line("break")
            self._refuse("else:", f"{path} has a varint longer than five bytes")
            if self._as_a_broker:  # brokers keep 32 of the 35 bits
                self.line("n &= 0xFFFFFFFF")
            else:
                self._refuse(f"n > {LENGTH_MAX}", f"{path} claims more than a message can hold")
