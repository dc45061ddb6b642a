"""Messages to bytes and back: `codec(MetadataResponse, 9).decode(body)`.

A codec is compiled once per message and version. Bodies only: framing and heads are `framing.py`; headers
have messages of their own (`RequestHeader`, `ResponseHeader`). Whatever the bytes are, decoding gives a
message or raises ProtocolError, and makes nothing larger than the bytes can account for.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from protocol.decoding import fields_reader, struct_reader
from protocol.encoding import fields_writer, struct_writer
from protocol.errors import EncodeError, ProtocolError, UnknownVersionError
from protocol.primitives import AS_A_BROKER
from protocol.values import Message, Value, request_type, response_type, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.primitives import Buffer, Reader
    from protocol.schema import Slot

__all__ = ["Codec", "codec", "request_type", "response_type"]

M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Decodes and encodes one message in one version. Get it from `codec()`."""

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
        self._read_prefix = cache(lambda through: fields_reader(self._slots(through), self._struct_type))
        self._write_prefix = cache(
            lambda through: fields_writer(self.layout, self._slots(through), self._struct_type)
        )

    def decode(self, data: Buffer, start: int = 0, end: int | None = None) -> M:
        """The message in data[start:end]. Raises ProtocolError for bad bytes, and for bytes left over."""
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
        """The request in data[start:end], as a broker reads it (`AS_A_BROKER`): bytes left over are ignored.

        Raises ProtocolError for bytes at which a broker closes the connection, UnencodableError for a request
        that it reads but `encode` cannot write.
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

    def decode_prefix(self, data: Buffer, start: int, end: int, through: str) -> tuple[M, int]:
        """The fields up to and including `through`, the others at their defaults, and the offset after it.

        `through` is a field of the message itself that the version has in its place (not tagged):
        ValueError if not. Raises ProtocolError for bad bytes.
        """
        read = self._read_prefix(through)
        limit = self._limit(data, start, end)
        try:
            values, position = read(data, start, limit)
        except ProtocolError as error:
            self._blame(error)
            raise
        return self.message(**values), position  # type: ignore[arg-type]  # the layout says what goes where

    def encode(self, message: M) -> bytes:
        """The message's bytes. Raises EncodeError, naming the field, for what this version cannot say.

        TypeError if it is not this codec's message at all.
        """
        out = bytearray()
        try:
            self._write(out, message)
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    def encode_prefix(self, message: M, through: str) -> bytes:
        """The bytes of the fields up to and including `through`, as in `decode_prefix`; no tag buffer."""
        write = self._write_prefix(through)
        out = bytearray()
        try:
            write(out, message)
        except EncodeError as error:
            self._blame(error)
            raise
        return bytes(out)

    def _limit(self, data: Buffer, start: int, end: int | None) -> int:
        limit = len(data) if end is None else end
        if not 0 <= start <= limit <= len(data):
            raise ValueError(f"[{start}:{limit}] is not within a buffer of {len(data)} bytes")
        return limit

    def _blame(self, error: ProtocolError) -> ProtocolError:
        """Say of an error from below which message it was; return it, for a frame that raises it from an
        argument would be in a cycle with it.
        """
        error.api, error.version = self.layout.name, self.version
        return error

    def _struct_type(self, name: str) -> type[Value]:
        return cast("type[Value]", getattr(self.message, name))

    def _slots(self, through: str) -> Sequence[Slot]:
        names = [slot.name for slot in self.layout.fields]
        if through not in names:
            raise ValueError(f"{self.layout.name} v{self.version} has no {through!r} among {names}")
        return self.layout.fields[: names.index(through) + 1]


def codec(message: type[M], version: int) -> Codec[M]:
    """The codec of a message in a version (cached). Raises UnknownVersionError."""
    return _cached(message, version)


@cache
def _cached(message: type[M], version: int) -> Codec[M]:
    return Codec(message, version)
