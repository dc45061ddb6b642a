"""Compression of usage files. Each write of records is a zstd frame of its own, so a file can be read up to
its latest write, also if the process was killed. Readers of zstd take consecutive frames for one file.
"""

from __future__ import annotations

import os
import sys
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FRAMES_BYTES: Final = 4 * 1024 * 1024
"""Number of bytes that `whole_frames` reads at once; frames of Weir's are shorter."""
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 1,  # in frames of 100 records, no larger than with level 3
    zstd.CompressionParameter.checksum_flag: 1,
}


def pack(lines: bytes) -> bytes:
    """Return lines as they are written to a file, in one write."""
    return zstd.compress(lines, options=_OPTIONS)


def whole_frames(fd: int, length: int) -> int:
    """Return the length (bytes) of a file of `length` bytes without its incomplete last frame. Raises
    OSError.
    """
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
