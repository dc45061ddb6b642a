"""Codecs decode bytes to messages and encode messages: `codec(MetadataResponse, 9).decode(body)`.

A codec is compiled once per message and version. It handles bodies only; `framing.py` handles frames, and
headers have messages of their own (`RequestHeader`, `ResponseHeader`). For any bytes, decoding returns a
message or raises ProtocolError; the memory that it allocates is proportional to the number of bytes.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from weir.protocol.decoding import fields_reader, struct_reader, tags_reader
from weir.protocol.encoding import fields_writer, struct_writer, tags_writer
from weir.protocol.errors import EncodeError, ProtocolError, UnknownVersionError
from weir.protocol.pieces import Pace, Pieces, WritePieces, struct_pieces_reader, struct_pieces_writer
from weir.protocol.primitives import AS_A_BROKER, STRICT
from weir.protocol.values import Message, Value, request_type, response_type, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.decoding import ReadTags
    from weir.protocol.encoding import Put
    from weir.protocol.primitives import Buffer, Reader
    from weir.protocol.schema import Slot

__all__ = ["Codec", "codec", "request_type", "response_type"]

M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Decodes and encodes one message in one version. Call `codec()` for a codec."""

    def __init__(self, message: type[M], version: int) -> None:
        self.message = message
        self.version = version
        schema = schema_of(message)
        if version not in schema.versions:
            raise UnknownVersionError(f"versions are {schema.versions}", api=schema.name, version=version)
        self.layout = schema.layout(version)
        self._read = struct_reader(self.layout, message, self._struct_type)
        self._read_leniently: Reader | None = None
        self._write = struct_writer(self.layout, message, self._struct_type)
        self._read_in_pieces = cache(
            lambda reading: struct_pieces_reader(self.layout, message, self._struct_type, reading)
        )
        self._read_prefix = cache(lambda through: fields_reader(self._slots(through), self._struct_type))
        self._write_prefix = cache(
            lambda through: fields_writer(self.layout, self._slots(through), self._struct_type)
        )
        self._read_suffix = cache(lambda since: fields_reader(self._last_slots(since), self._struct_type))
        self._write_suffix = cache(
            lambda since: fields_writer(self.layout, self._last_slots(since), self._struct_type)
        )

    def decode(self, data: Buffer, start: int = 0, end: int | None = None) -> M:
        """Return the message that the bytes data[start:end] contain. Raises ProtocolError if the bytes are
        malformed, or if bytes follow the message.
        """
        limit = self._limit(data, start, end)
        try:
            message, position = self._read(data, start, limit)
        except ProtocolError as error:
            self._blame(error)
            raise
        if position != limit:
            raise self._blame(ProtocolError(f"{limit - position} bytes left over", offset=position))
        return cast("M", message)

    def decode_request(self, data: Buffer, start: int = 0, end: int | None = None) -> M:
        """Return the request in data[start:end], decoded like in a broker (`AS_A_BROKER`): bytes behind the
        request are ignored.

        Raises ProtocolError for bytes at which a broker closes the connection, UnencodableError for a request
        that brokers can read but `encode` cannot write.
        """
        if self._read_leniently is None:
            self._read_leniently = struct_reader(self.layout, self.message, self._struct_type, AS_A_BROKER)
        limit = self._limit(data, start, end)
        try:
            message, _position = self._read_leniently(data, start, limit)
        except ProtocolError as error:
            self._blame(error)
            raise
        return cast("M", message)

    def decode_in_pieces(
        self, data: Buffer, start: int = 0, end: int | None = None, *, elements_max: int | None = None
    ) -> Pieces[M]:
        """Return the message in data[start:end], decoded in steps that yield None in between. Raises
        ProtocolError for malformed bytes, and for bytes behind the message. If `elements_max` is given,
        decode like `decode_request`, and raise OversizedError if all arrays of structs or strings have more
        than `elements_max` elements together.
        """
        lenient = elements_max is not None
        limit = self._limit(data, start, end)
        read = self._read_in_pieces(AS_A_BROKER if lenient else STRICT)
        try:
            message, position = yield from read(data, start, limit, Pace(start, elements_max))
            if position != limit and not lenient:
                raise ProtocolError(f"{limit - position} bytes left over", offset=position)
        except ProtocolError as error:
            self._blame(error)
            raise
        return cast("M", message)

    def encode_in_pieces(self, message: M) -> Pieces[bytes]:
        """Return the message's bytes, encoded in steps that yield None in between. Raises EncodeError for
        values that this version cannot express, TypeError if `message` is of another type than this codec's.
        """
        out = bytearray()
        try:
            yield from self._write_in_pieces(out, message, Pace(0))
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    def decode_prefix(self, data: Buffer, start: int, end: int, through: str) -> tuple[M, int]:
        """Decode only the first fields of a message, up to and including the field `through`. Return
        (message, position after that field). The other fields of the message have their defaults. Raises
        ValueError if `through` is not an untagged top-level field of this version, ProtocolError for
        malformed bytes.
        """
        read = self._read_prefix(through)
        limit = self._limit(data, start, end)
        try:
            values, position = read(data, start, limit)
        except ProtocolError as error:
            self._blame(error)
            raise
        return self.message(**values), position  # type: ignore[arg-type]  # the layout has matching types

    def encode(self, message: M) -> bytes:
        """Return the message's bytes. Raises EncodeError, with the field's name, for values that this version
        cannot express, TypeError if `message` is of another type than this codec's.
        """
        out = bytearray()
        try:
            self._write(out, message)
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    def encode_prefix(self, message: M, through: str) -> bytes:
        """Return the bytes of the message's first fields, up to and including the field `through`, without
        tagged fields. Raises EncodeError for values that this version cannot express, and ValueError if
        `through` is not an untagged top-level field of this version.
        """
        write = self._write_prefix(through)
        out = bytearray()
        try:
            write(out, message)
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    def decode_suffix(self, data: Buffer, start: int, end: int, since: str) -> M:
        """Decode only the last fields of a message, from the field `since` on, whose first byte is at
        `start`; with "", only the tagged fields. The fields before it have their defaults. Raises ValueError
        if `since` is not an untagged top-level field of this version, ProtocolError for malformed bytes, and
        for bytes behind the message.
        """
        read = self._read_suffix(since)
        limit = self._limit(data, start, end)
        try:
            values, position = read(data, start, limit)
            if self._read_tags is not None:
                position = self._read_tags(data, position, limit, values)
            if position != limit:
                raise ProtocolError(f"{limit - position} bytes left over", offset=position)
        except ProtocolError as error:
            self._blame(error)
            raise
        return self.message(**values)  # type: ignore[arg-type]  # the layout has matching types

    def encode_suffix(self, message: M, since: str) -> bytes:
        """Return the bytes of the message's last fields, from the field `since` on; with "", only of the
        tagged fields. Raises EncodeError for values that this version cannot express, and ValueError if
        `since` is not an untagged top-level field of this version.
        """
        write = self._write_suffix(since)
        out = bytearray()
        try:
            write(out, message)
            if self._write_tags is not None:
                self._write_tags(out, message)
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    @cached_property
    def _read_tags(self) -> ReadTags | None:
        return tags_reader(self.layout, self._struct_type, STRICT) if self.layout.flexible else None

    @cached_property
    def _write_tags(self) -> Put | None:
        return tags_writer(self.layout, self._struct_type) if self.layout.flexible else None

    @cached_property
    def _write_in_pieces(self) -> WritePieces:
        return struct_pieces_writer(self.layout, self.message, self._struct_type)

    def _limit(self, data: Buffer, start: int, end: int | None) -> int:
        limit = len(data) if end is None else end
        if not 0 <= start <= limit <= len(data):
            raise ValueError(f"[{start}:{limit}] is not within a buffer of {len(data)} bytes")
        return limit

    def _blame(self, error: ProtocolError) -> ProtocolError:
        """Add the message's name and version to `error`, and return `error`: the caller raises it. (If this
        method raised its own argument, its frame and the error would be in a reference cycle.)
        """
        error.api, error.version = self.layout.name, self.version
        return error

    def _struct_type(self, name: str) -> type[Value]:
        return cast("type[Value]", getattr(self.message, name))

    def _slots(self, through: str) -> Sequence[Slot]:
        return self.layout.fields[: self._index(through) + 1]

    def _last_slots(self, since: str) -> Sequence[Slot]:
        return self.layout.fields[self._index(since) :] if since else ()

    def _index(self, field: str) -> int:
        names = [slot.name for slot in self.layout.fields]
        if field not in names:
            raise ValueError(f"{self.layout.name} v{self.version} has no {field!r} among {names}")
        return names.index(field)


def codec(message: type[M], version: int) -> Codec[M]:
    """Return the codec of a message in a version (cached). Raises UnknownVersionError if the schemas lack the
    version.
    """
    return _cached(message, version)


@cache
def _cached(message: type[M], version: int) -> Codec[M]:
    return Codec(message, version)
