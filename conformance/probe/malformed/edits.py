"""Edits of a frame: bytes replaced at one place, and the frame's length corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.conformance.probe.malformed.marks import MarkKind
from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.primitives import write_uvarint

if TYPE_CHECKING:
    from weir.conformance.probe.malformed.marks import Mark


def framed(content: bytes) -> bytes:
    """Return content with the length prefix that belongs to it."""
    return LENGTH.pack(len(content)) + content


def replaced(frame: bytes, start: int, end: int, new: bytes) -> bytes:
    """Return the frame with `new` instead of frame[start:end], and with the right frame length."""
    return framed(frame[LENGTH_BYTES:start] + new + frame[end:])


def cut(frame: bytes, end: int) -> bytes:
    """Return the frame's bytes before `end`, with the right frame length."""
    return framed(frame[LENGTH_BYTES:end])


def varint(value: int, size: int = 1) -> bytes:
    """Return an unsigned varint, padded to at least `size` bytes with bits that are 0."""
    out = bytearray()
    write_uvarint(out, value)
    if len(out) < size:
        out[-1] |= 0x80
        out += b"\x80" * (size - len(out) - 1) + b"\x00"
    return bytes(out)


def length(mark: Mark, value: int) -> bytes:
    """Return the bytes of a length or count of this value in the form that the marked field has. A compact
    length below -1 wraps around at 32 bits, like in Kafka.
    """
    if mark.compact:
        return varint((value + 1) & 0xFFFFFFFF)
    width = 2 if mark.role is MarkKind.STRING else 4
    return value.to_bytes(width, signed=True)


def with_length(frame: bytes, mark: Mark, value: int) -> bytes:
    """Return the frame with another length or count of the marked field; the content stays."""
    return replaced(frame, mark.start, mark.content, length(mark, value))
