"""Split the content of a file into lines, with bounded memory, whatever the file contains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

BLOCK_BYTES: Final = 4 << 20
"""Number of bytes that are read at once."""
LINE_BYTES_MAX: Final = 1 << 20
"""Maximum length (bytes) of the end of a block without newline, and therefore, roughly, of a line."""
UNPACKED_BYTES_MAX: Final = 4 << 30
"""Maximum number of bytes that a compressed file is unpacked to."""
COMPRESSIONS: Final = {".jsonl": None, ".jsonl.gz": "gzip", ".jsonl.zst": "zstd"}
"""Name of the compression by ending of a file's name. Other files are not read."""


class Unread(NamedTuple):
    """A part of a file that is not read: one line, or the rest of the file."""

    start: bytes
    """First bytes of the part, if known."""
    reason: str


Block: TypeAlias = bytes | Unread


def blocks(name: str, content: pa.Buffer | str) -> Iterator[Block]:
    """Yield the content of the file `name` as blocks of whole lines, and its parts that are not read.
    `content` is the content, or a path that this process can open. Raises FileNotFoundError.
    """
    compression = next(kind for end, kind in reversed(COMPRESSIONS.items()) if name.endswith(end))
    rest, is_skipping = b"", False
    for piece in _pieces(content, compression):
        if isinstance(piece, Unread):
            yield piece
            continue
        if is_skipping:
            _line, newline, piece = piece.partition(b"\n")
            if not newline:
                continue
            is_skipping = False
        whole, newline, end = piece.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = end
        else:
            rest += end
        if len(rest) > LINE_BYTES_MAX:
            yield Unread(rest, f"the line is longer than {LINE_BYTES_MAX} bytes")
            rest, is_skipping = b"", True
    if rest:
        yield rest


def _pieces(content: pa.Buffer | str, compression: str | None) -> Iterator[Block]:
    """Yield the unpacked bytes in pieces of limited size, then possibly the reason for an end."""
    stream = pa.input_stream(content, compression=compression)
    left = UNPACKED_BYTES_MAX
    while True:
        try:
            piece = stream.read(BLOCK_BYTES)
        except OSError as error:
            yield _up_to_damage(content, compression, UNPACKED_BYTES_MAX - left)
            yield Unread(b"", f"the rest of the file cannot be unpacked: {error}")
            return
        if not piece:
            return
        left -= len(piece)
        if left < 0:
            yield Unread(
                b"", f"the rest of the file is not read: it unpacks to over {UNPACKED_BYTES_MAX} bytes"
            )
            return
        yield piece


def _up_to_damage(content: pa.Buffer | str, compression: str | None, start: int) -> bytes:
    """Return the unpacked bytes from `start` up to the damage. The read that meets the damage returns
    nothing, so each of these reads asks for one byte.
    """
    stream = pa.input_stream(content, compression=compression)
    for _ in range(start // BLOCK_BYTES):
        stream.read(BLOCK_BYTES)
    found = bytearray()
    with suppress(OSError):
        while piece := stream.read(1):
            found += piece
    return bytes(found)
