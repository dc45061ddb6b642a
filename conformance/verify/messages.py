"""Decodes one frame at its version, encodes it again, and compares the bytes.

If they are equal, the message is as Kafka's own writers write it. Otherwise a scanner finds the fields that
differ (`differences`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from weir.conformance.verify.differences import DEFECTS_MAX, Locator, MessageScanner, TagScanner
from weir.conformance.verify.finding import Defect
from weir.conformance.verify.rules import R
from weir.protocol import schema
from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE
from weir.protocol.scanning.field_offsets import field_offset

if TYPE_CHECKING:
    from weir.protocol.codec import Codec
    from weir.protocol.schema import Layout
    from weir.protocol.values import Message

Kind = Literal["request", "response"]

LARGE: Final = 1 << 20
"""Size (bytes) of a frame from which its elements are counted before it is decoded."""
ELEMENTS_MAX: Final = 200_000
"""Maximum number of array elements and tagged fields of a large message that is decoded: each takes about 200
bytes.
"""
_REQUEST_HEAD: Final = 12
_RESPONSE_HEAD: Final = 8


class Form(msgspec.Struct, frozen=True):
    """The form of a message in one version: its header and its body."""

    kind: Kind
    codec: Codec[Message]
    header: Layout
    flexible: bool
    """True if the header has tagged fields."""
    has_client_id: bool


class Read(msgspec.Struct, frozen=True):
    """Result of reading a frame."""

    message: Message | None
    """None if the frame cannot be decoded even by a lenient reader, or has too many elements."""
    defects: list[Defect]


@cache
def form(kind: Kind, api_key: int, version: int) -> Form:
    """Return a message's form (cached). Raises UnknownVersionError if the schemas lack the version."""
    make, header_version = (
        (request_type, request_header_version)
        if kind == "request"
        else (response_type, response_header_version)
    )
    number = header_version(api_key, version)
    layout = schema.header(kind).layout(number)
    return Form(
        kind, codec(make(api_key), version), layout, layout.flexible, kind == "request" and number > 0
    )


_LAST_FIELDS: Final = 3
"""Number of fields that the finding about trailing bytes names."""


def throttle_place(data: bytes, shape: Form) -> str:
    """Return the place of throttle_time_ms in the frame of a response, for people; empty if unknown."""
    field = field_offset(shape.codec.message, shape.codec.version, "throttle_time_ms")
    body = _body(data, shape)
    position = INCOMPLETE if field is None or body < 0 else field.locate(data, body, len(data), True)
    return "" if position == INCOMPLETE else f", byte {position}"


def end_of(data: bytes, shape: Form) -> str:
    """Return the path of the field within which the bytes of a frame end; empty if unknown."""
    scanner = _scan(data, shape)
    return "" if scanner.complete else scanner.defects[-1].path


def read(data: bytes, shape: Form) -> Read:
    """Read the frame `data`, which begins with its length prefix. Never raises for any bytes that have at
    least a head (`framing`).
    """
    if len(data) > LARGE:
        scanner = _scan(data, shape)
        if scanner.elements > ELEMENTS_MAX:
            return Read(None, [*scanner.defects, _unchecked(scanner.elements)])
    start = _body(data, shape)
    if start < 0:
        return _explain(data, shape, "")
    try:
        message = shape.codec.decode(data, start)
        encoded = shape.codec.encode(message)
    except ProtocolError as error:
        return _explain(data, shape, error.reason)
    if len(encoded) != len(data) - start or not data.endswith(encoded):
        return _differing(data, shape, start, encoded, message)
    return Read(message, [])


def _unchecked(elements: int) -> Defect:
    text = "The message has too many elements, so its values are not checked."
    return Defect(R.CONTENTS_UNCHECKED, text, "", -1, f"at most {ELEMENTS_MAX}", str(elements))


def _body(data: bytes, shape: Form) -> int:
    """Return the start of the body behind a usual header: ASCII in the client-id, and no tagged fields; -1
    behind any other header.
    """
    position = _RESPONSE_HEAD
    if shape.kind == "request":
        position = _REQUEST_HEAD
        if shape.has_client_id:
            length = int.from_bytes(data[position : position + 2], signed=True)
            position += 2 + max(0, length)
            if length < -1 or not data[_REQUEST_HEAD + 2 : position].isascii():
                return -1
    if shape.flexible:
        if data[position : position + 1] != b"\0":
            return -1
        position += 1
    return position if position <= len(data) else -1


def _scan(data: bytes, shape: Form) -> MessageScanner:
    """Scan header and body. `complete` is True if the body was scanned to its end."""
    scanner = MessageScanner(data, 4)
    scanner.scan(shape.header, "header")
    if scanner.complete:
        scanner.scan(shape.codec.layout)
    if scanner.complete and scanner.position < len(data):
        scanner.defects.append(_trailing(data, shape, scanner.position))
    return scanner


def _explain(data: bytes, shape: Form, reason: str) -> Read:
    """Find the defects of a frame that the codec refused for this reason."""
    scanner = _scan(data, shape)
    defects = scanner.defects
    if not scanner.complete:
        return Read(None, defects)
    message, failure = _lenient(data, shape)
    if not defects and (failure or reason):
        defects.append(
            Defect(R.ENCODING_DIFFERS, "The message cannot be decoded.", "", -1, "", failure or reason)
        )
    return Read(message, defects)


def _trailing(data: bytes, shape: Form, offset: int) -> Defect:
    count = len(data) - offset
    found = "1 byte" if count == 1 else f"{count} bytes"
    if shape.kind == "request":
        text = (
            "The client writes bytes behind the request's last field; brokers ignore them. Leave them out. "
            "Or leave out a field before them that this version does not have"
        )
        text += f": brokers read {_last_fields(data, shape)}." if len(data) <= LARGE else "."
        return Defect(R.REQUEST_TRAILING_BYTES, text, "", offset, "the end of the frame", found)
    text = "The server writes bytes behind the response's last field. Leave them out."
    return Defect(R.RESPONSE_TRAILING_BYTES, text, "", offset, "the end of the frame", found)


def _last_fields(data: bytes, shape: Form) -> str:
    """Return the names and values of the last fields of a message, as a broker reads them."""
    message, _ = _lenient(data, shape)
    names = [slot.name for slot in shape.codec.layout.fields[-_LAST_FIELDS:]]
    values = [f"{name} = {_short(getattr(message, name, None))}" for name in names]
    if shape.flexible:
        values.append("tagged fields")
    return ", ".join(values) or "no fields"


def _short(value: object) -> str:
    if isinstance(value, list | tuple | dict):
        return f"{len(value)} elements"
    return repr(value) if isinstance(value, bool | int | str | None) else type(value).__name__


def _lenient(data: bytes, shape: Form) -> tuple[Message | None, str]:
    """Return (message as a broker reads it, ""), or (None, the reason for which this fails)."""
    header = MessageScanner(data, 4)
    header.scan(shape.header)
    try:
        return shape.codec.decode_request(data, header.position), ""
    except ProtocolError as error:
        return None, error.reason


def _differing(data: bytes, shape: Form, start: int, encoded: bytes, message: Message) -> Read:
    scanner = _scan(data, shape)
    if scanner.defects:
        return Read(message, scanner.defects)
    offset = start + _first_difference(data[start:], encoded)
    locator = Locator(data, start, frozenset(), offset)
    locator.scan(shape.codec.layout)
    expected = encoded[offset - start : offset - start + 8].hex(" ")
    found = data[offset : offset + 8].hex(" ")
    if len(encoded) < len(data) - start:
        defect = _superfluous_tag(data, shape, start, encoded, offset)
    else:
        text = "The message encoded again has other bytes."
        defect = Defect(R.ENCODING_DIFFERS, text, locator.path_at, offset, expected, found)
    return Read(message, [defect])


def _superfluous_tag(data: bytes, shape: Form, start: int, encoded: bytes, offset: int) -> Defect:
    """Return the defect of a message whose encoding lacks a tagged field. `offset`: of the first byte that
    differs.
    """
    written, needed = TagScanner(data, start), TagScanner(encoded, 0)
    written.scan(shape.codec.layout)
    needed.scan(shape.codec.layout)
    kept = {path for path, _ in needed.tags}
    path, offset = next((tag for tag in written.tags if tag[0] not in kept), ("", offset))
    text = "A tagged field with its default value is written. Leave it out."
    return Defect(R.TAG_DEFAULT, text, path, offset, "no such field", "the default value")


def _first_difference(one: bytes, other: bytes) -> int:
    """Return the first index at which the two differ; the length of the shorter one if it is a prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # the longest common prefix, by bisection
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def located(data: bytes, shape: Form, defects: list[Defect], sizes: dict[str, int]) -> list[Defect]:
    """Return the defects with offsets in the frame. `sizes`: path of a records field → size (bytes) of its
    content; the offsets of defects below such a path count from that content.
    """
    paths = {_field(defect.path, sizes) for defect in defects}
    header = MessageScanner(data, 4)
    header.scan(shape.header)
    locator = Locator(data, header.position, frozenset(paths))
    locator.scan(shape.codec.layout)
    return [_placed(defect, locator, sizes) for defect in defects[:DEFECTS_MAX]]


def _field(path: str, sizes: dict[str, int]) -> str:
    field = path.partition(".batch[")[0]
    return field if field in sizes else path


def _placed(defect: Defect, locator: Locator, sizes: dict[str, int]) -> Defect:
    field = _field(defect.path, sizes)
    if field not in locator.spans:
        return defect
    start, end = locator.spans[field]
    offset = end - sizes[field] + max(0, defect.offset) if field in sizes else start
    return Defect(defect.rule, defect.message, defect.path, offset, defect.expected, defect.found)
