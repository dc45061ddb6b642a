"""Finds and changes the tagged fields of messages that arrive in parts.

A fetch response of 50 MB is never in memory as a whole. `StreamScanner` scans its fields chunk by chunk up to
the message's tagged fields; records are skipped by their length. `EndpointMask` then reads the tagged fields,
and makes clients ignore the addresses of brokers (NodeEndpoints of KIP-951), because with these addresses
clients would bypass Weir. The addresses cannot be removed, because the frame's length has already been sent.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from weir.protocol.errors import ProtocolError
from weir.protocol.scanning.field_offsets import MessageLike, layout
from weir.protocol.scanning.field_scanner import LENGTH_MAX, Bytes, Chunks, Stream, streamer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

UNKNOWN_TAG: Final = 127
"""Tag that `EndpointMask` writes instead of the tag of the addresses.

This tag takes one byte, like the original tag, and is the largest such tag. Kafka 4.4 has no tag above 3, so
a newer client is unlikely to know this tag. Writers must sort tags (KIP-482). The largest tag keeps the
order, because the addresses are the last top-level tagged field of every version in the schemas. If a newer
broker sends another field behind the addresses, the tags are not in order. No choice of tag could prevent
this, because the next tag may be the very next number, and is not known when the mask is sent. The other
field stays unchanged for clients that know it. Kafka's own classes (tried: 3.9.1, 4.2.0) accept tags in any
order; a strict reader, such as this project's codec, refuses the message.
"""


class StreamScanner:
    """Scans one message's body chunk by chunk; skips strings and records without reading their bytes."""

    __slots__ = ("_chunks", "tag_section")

    def __init__(self, message: MessageLike, version: int) -> None:
        """Begin at the start of a body. Raises ValueError if the version is not flexible, or not in the
        schemas.
        """
        found = layout(message, version)
        if not found.flexible:
            raise ValueError(f"{found.name} v{version} has no tag section")
        self._chunks = Chunks(_streamer(found.name, version)())
        self.tag_section: int | None = None
        """Offset of the tagged fields from the body's start; None until their first byte has been fed."""

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next and need not be fed."""
        return 0 if self.tag_section is not None else self._chunks.skippable_bytes

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`."""
        self._chunks.skip(count)

    def feed(self, data: Bytes, start: int, stop: int) -> None:
        """Scan the body's next bytes, `data[start:stop]`. Raises ProtocolError for malformed bytes, and at
        every call after that.
        """
        if self.tag_section is None:
            self.tag_section = self._chunks.feed(data, start, stop)


class EndpointMask:
    """Changes a response in place, chunk by chunk, so that clients get no addresses of brokers.

    The field with the addresses gets a tag that no client knows (`UNKNOWN_TAG`), and zeros as its value. The
    field's length stays the same.
    """

    __slots__ = (
        "_body",
        "_data",
        "_fed",
        "_found",
        "_offset",
        "_reading_tags",
        "_scanner",
        "_stop",
        "_tag",
        "finished",
        "masked",
    )

    def __init__(self, message: MessageLike, version: int) -> None:
        """Begin at the start of a body. Raises ValueError if `endpoints_tag` is None for this version."""
        tag = endpoints_tag(message, version)
        if tag is None:
            raise ValueError(f"{layout(message, version).name} v{version} has no addresses among its tags")
        self.masked = 0
        """Number of fields with broker addresses that were masked so far."""
        self.finished = False
        """True once the end of the tagged fields has been fed."""
        self._tag = tag
        self._found = layout(message, version)
        self._scanner = StreamScanner(message, version)
        self._reading_tags = self._tags()
        self._fed = 0
        self._data = bytearray()
        self._body = self._stop = 0
        self._offset = 0
        """Offset in the body of the next byte to read, which is `_data[_body + _offset]`. The byte has
        arrived only if that position is before `_stop`.
        """

    @property
    def skippable_bytes(self) -> int:
        """Number of bytes that come next, need no change, and need not be fed."""
        return self._scanner.skippable_bytes

    def skip(self, count: int) -> None:
        """Go on behind the next `count` bytes, at most `skippable_bytes`."""
        self._scanner.skip(count)
        self._fed += count

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Read the body's next bytes, `data[start:stop]`, before they are sent, and change them if needed.

        Raises ProtocolError for malformed bytes. The caller must then not send the chunk, because it may
        contain addresses.
        """
        self._scanner.feed(data, start, stop)
        self._data, self._body, self._stop = data, start - self._fed, stop
        self._fed += stop - start
        if self._scanner.tag_section is not None and not self.finished:
            for _ in self._reading_tags:  # the generator needs the next chunk
                return
            if not self.finished:
                raise self._malformed("the tag section was malformed before")

    def _tags(self) -> Generator[None, None, None]:
        """Read the tagged fields, and replace the tag and value of the field with addresses of brokers; yield
        whenever the next chunk is needed.
        """
        self._offset = self._scanner.tag_section or 0
        count = yield from self._length((yield from self._byte()))
        for _ in range(count):
            first = yield from self._byte()
            is_masked = first == self._tag
            if is_masked:
                self._data[self._body + self._offset - 1] = UNKNOWN_TAG
                self.masked += 1
            elif first > 127 and (yield from self._length(first)) == self._tag:
                # A part of the tag may have been sent, so it cannot be masked. No broker writes such a tag.
                raise self._malformed("a tag is longer than it needs to be")
            size = yield from self._length((yield from self._byte()))
            if is_masked:
                yield from self._erase(self._offset + size)
            else:
                self._offset += size
        self.finished = True

    def _erase(self, end: int) -> Generator[None, None, None]:
        """Overwrite the body from the current offset up to the offset `end` with zeros; yield to wait for
        chunks.
        """
        while self._offset < end:
            start, stop = self._body + self._offset, min(self._body + end, self._stop)
            if start >= stop:
                yield
                continue
            self._data[start:stop] = bytes(stop - start)
            self._offset += stop - start

    def _byte(self) -> Generator[None, None, int]:
        while self._body + self._offset >= self._stop:
            yield
        byte = self._data[self._body + self._offset]
        self._offset += 1
        return byte

    def _length(self, first: int) -> Generator[None, None, int]:
        """Return the value of a varint whose first byte is `first`; yield to wait for the chunks with its
        other bytes.
        """
        value = first & 127
        shift = 0
        while first > 127:
            shift += 7
            if shift > 28:
                raise self._malformed("a varint is longer than five bytes")
            first = yield from self._byte()
            value |= (first & 127) << shift
        if value > LENGTH_MAX:
            raise self._malformed("the tag section claims more than a message can hold")
        return value

    def _malformed(self, problem: str) -> ProtocolError:
        return ProtocolError(problem, api=self._found.name, version=self._found.version, offset=self._offset)


def endpoints_tag(message: MessageLike, version: int) -> int | None:
    """Return the tag of the top-level tagged field with addresses of brokers (structs with a host and a
    port); None if the version has no such field.

    Raises ValueError for a message or version that the schemas lack.
    """
    for slot in layout(message, version).tagged:
        names = {inner.name for inner in slot.struct.fields} if slot.struct else set()
        if {"host", "port"} <= names:
            return slot.tag
    return None


@cache
def _streamer(message: str, version: int) -> Callable[[], Stream]:
    found = layout(message, version)
    return streamer(found, found.fields)
