"""Messages that are larger than the buffer: finding their tag section, and changing it, as they stream by.

A fetch response of 50 MB is never in memory as a whole. `StreamScanner` follows its fields chunk by chunk to
where the root's tagged fields begin; records are stepped over by their length. `EndpointMask` goes on from
there and makes clients overlook the addresses of brokers (NodeEndpoints of KIP-951), which would lead them
past Weir: nothing can be taken out of a frame whose head, and so its length, has been sent.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from protocol import schema
from protocol.errors import ProtocolError
from protocol.field_offsets import MessageLike, layout
from protocol.field_scanner import LENGTH_MAX, Bytes, Chunks, Stream, streamer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

UNKNOWN_TAG: Final = 127
"""The tag that a neutralised field gets instead of its own.

It takes one byte, as the tag it replaces does, and of such tags it is the farthest from those in use (Kafka
4.2 has none above 3), lest a newer client finds a meaning in it. Writers must put tags in ascending order
(KIP-482), and with the highest tag that is still so: addresses are the last root tag of every version in
the schemas. A broker newer than them may put a field of its own behind; then the order breaks, and no
choice could keep it, as the next tag may be the very next number and is not known when this one has to go.
Such a field is left alone, for clients that know it. Kafka's own classes (tried: 3.9.1, 4.2.0) look at each
tag by itself, whatever came before; a strict reader, as this project's own codec is, refuses.
"""


class StreamScanner:
    """Follows one message's body through its chunks, at no cost per byte of strings or records."""

    __slots__ = ("_chunks", "tag_section")

    def __init__(self, message: MessageLike, version: int) -> None:
        """Raises ValueError if the version is not flexible, or not in the schemas."""
        found = layout(message, version)
        if not found.flexible:
            raise ValueError(f"{found.name} v{version} has no tag section")
        self._chunks = Chunks(_streamer(found.name, version)())
        self.tag_section: int | None = None
        """Bytes from the body's start to the tag section, once its first byte has been fed."""

    def feed(self, data: Bytes, start: int, stop: int) -> None:
        """Look at the body's next bytes, `data[start:stop]`. Raises ProtocolError, and then nothing but
        that."""
        if self.tag_section is None:
            self.tag_section = self._chunks.feed(data, start, stop)


class EndpointMask:
    """Changes a response as it streams by, in place, so that clients find no addresses of brokers in it.

    The addresses stay in the frame, under a tag that no client knows.
    """

    __slots__ = (
        "_body",
        "_data",
        "_fed",
        "_found",
        "_offset",
        "_scanner",
        "_stop",
        "_tag",
        "_walk",
        "finished",
        "neutralised",
    )

    def __init__(self, message: MessageLike, version: int) -> None:
        """Raises ValueError if the version has no addresses among its root tags (see `endpoints_tag`)."""
        tag = endpoints_tag(message, version)
        if tag is None:
            raise ValueError(f"{layout(message, version).name} v{version} has no addresses among its tags")
        self.neutralised = 0
        """How many fields have got another tag."""
        self.finished = False
        """Whether the body has been seen to the end of its tag section."""
        self._tag = tag
        self._found = layout(message, version)
        self._scanner = StreamScanner(message, version)
        self._walk = self._tags()
        self._fed = 0
        self._data = bytearray()
        self._body = self._stop = 0
        self._offset = 0
        """In the body, of the next byte to look at: `_data[_body + _offset]`, if that is before `_stop`."""

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Look at the body's next bytes, `data[start:stop]`, before they are sent on; they may be changed.

        Raises ProtocolError; the response must not go on then, as what it says is not known.
        """
        self._scanner.feed(data, start, stop)
        self._data, self._body, self._stop = data, start - self._fed, stop
        self._fed += stop - start
        if self._scanner.tag_section is not None and not self.finished:
            for _ in self._walk:  # until it wants the next chunk
                return
            if not self.finished:
                raise self._malformed("the tag section was malformed before")

    def _tags(self) -> Generator[None, None, None]:
        """Walk over the tag section, waiting in `_byte` for the chunks."""
        self._offset = self._scanner.tag_section or 0
        count = yield from self._length((yield from self._byte()))
        for _ in range(count):
            first = yield from self._byte()
            if first == self._tag:
                self._data[self._body + self._offset - 1] = UNKNOWN_TAG
                self.neutralised += 1
            elif first > 127 and (yield from self._length(first)) == self._tag:
                # Part of it may be gone already. No broker writes a tag this way.
                raise self._malformed("a tag is longer than it needs to be")
            size = yield from self._length((yield from self._byte()))
            self._offset += size
        self.finished = True

    def _byte(self) -> Generator[None, None, int]:
        while self._body + self._offset >= self._stop:
            yield
        byte = self._data[self._body + self._offset]
        self._offset += 1
        return byte

    def _length(self, first: int) -> Generator[None, None, int]:
        """The value of the varint that begins with `first`."""
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
    """The root tag that holds addresses of brokers, structs with a host and a port; None if there is none.

    Raises ValueError for a message or version that the schemas do not know.
    """
    for slot in layout(message, version).tagged:
        names = {inner.name for inner in slot.struct.fields} if slot.struct else set()
        if {"host", "port"} <= names:
            return slot.tag
    return None


@cache
def _streamer(message: str, version: int) -> Callable[[], Stream]:
    found = schema.message(message)
    if found is None:
        raise ValueError(f"no message of Kafka's is called {message}")
    return streamer(found.layout(version))
