"""Compression of usage files. Each write of records is a zstd frame of its own, so a file can be read up to
its latest write, also if the process was killed. Readers of zstd take consecutive frames for one file.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TAIL_BYTES: Final = 64 * 1024
FRAMES_BYTES: Final = 4 * 1024 * 1024
"""Number of bytes that `Compression.whole_bytes` reads at once; frames of Weir's are shorter."""
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,  # in frames of 100 records, no larger than with level 3
    zstd.CompressionParameter.checksum_flag: 1,
}


class Compression(StrEnum):
    """Compression of files of usage records."""

    ZSTD = "zstd"
    NONE = "none"

    @property
    def ending(self) -> str:
        """End of the names of finished files."""
        return ".jsonl.zst" if self is Compression.ZSTD else ".jsonl"

    @staticmethod
    def of(name: str) -> Compression:
        """Return the compression of a file with this name."""
        return Compression.ZSTD if name.endswith(Compression.ZSTD.ending) else Compression.NONE

    def pack(self, lines: bytes) -> bytes:
        """Return lines as they are written to a file, in one write."""
        return zstd.compress(lines, options=_OPTIONS) if self is Compression.ZSTD else lines

    def whole_lines(self, written: bytes) -> bytes:
        """Return the start of `written` with complete lines. `written` is the part of a failed write that is
        in a file. A part of a frame has no complete line.
        """
        return b"" if self is Compression.ZSTD else written[: written.rfind(b"\n") + 1]

    def whole_bytes(self, fd: int, length: int) -> int:
        """Return the length (bytes) of a file of `length` bytes without its incomplete last line or frame.
        Raises OSError.
        """
        return _whole_frames(fd, length) if self is Compression.ZSTD else _whole_lines(fd, length)


def _whole_frames(fd: int, length: int) -> int:
    end = 0
    while end < length:
        frames = _frames(os.pread(fd, FRAMES_BYTES, end))
        if not frames:
            break
        end += frames
    return end


def _frames(content: bytes) -> int:
    """Return the length (bytes) of the complete frames at the start of `content`."""
    end, view = 0, memoryview(content)
    while end < len(content):
        try:
            end += zstd.get_frame_size(view[end:])
        except zstd.ZstdError:
            break
    return end


def _whole_lines(fd: int, length: int) -> int:
    end = length
    while end > 0:
        begin = max(end - TAIL_BYTES, 0)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
