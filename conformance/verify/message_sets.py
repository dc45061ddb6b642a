"""Checks the messages of the older formats: magic 0 and 1 (KIP-32).

A message has a CRC-32 over all bytes behind it. A compressed message's value is a set of messages; messages
of magic 1 inside it have relative offsets.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final

from weir.conformance.verify.finding import Defect
from weir.conformance.verify.rules import R
from weir.conformance.verify.unpacking import NAMES, CorruptError, UnopenedError, unpack
from weir.protocol.scanning.record_batches import CODEC_BITS
from weir.protocol.scanning.unpacked_sizes import LZ4, ZSTD

_HEAD: Final = Struct(">qiIbb")
_SIZE: Final = Struct(">i")
_CRC_END: Final = 16
_TIMESTAMP_BYTES: Final = 8
DEFECTS_MAX: Final = 20
"""Maximum number of defects reported of one message set."""


class MessageSetChecker:
    """Checks the messages in data[start:stop]. `defects` has the results."""

    def __init__(self, data: bytes, start: int, stop: int, path: str, *, inner: bool = False) -> None:
        self.data = data
        self.start = start
        self.stop = stop
        self.defects: list[Defect] = []
        self._path = path
        self._inner = inner
        """True for the set within a compressed message."""

    def check(self) -> None:
        """Check all messages."""
        position = self.start
        while position < self.stop and len(self.defects) < DEFECTS_MAX:
            left = self.stop - position
            size: int = _SIZE.unpack_from(self.data, position + 8)[0] if left >= _HEAD.size + 8 else -1
            if not 14 <= size <= left - 12:
                self._report(
                    R.BATCH_LENGTH,
                    "A message's length exceeds its set.",
                    ".length",
                    position,
                    f"at most {left - 12}",
                    str(size),
                )
                return
            self._message(position, position + 12 + size)
            position += 12 + size

    def _message(self, position: int, stop: int) -> None:
        _offset, _size, crc, magic, attributes = _HEAD.unpack_from(self.data, position)
        found = zlib.crc32(memoryview(self.data)[position + _CRC_END : stop])
        if found != crc:
            self._report(
                R.BATCH_CRC,
                "The checksum does not fit the bytes.",
                ".crc",
                position + 12,
                f"{found:08x}",
                f"{crc:08x}",
            )
            return
        at = position + _HEAD.size + (_TIMESTAMP_BYTES if magic == 1 else 0)
        key = self._bytes(at, stop)
        value = None if key is None else self._bytes(key[1], stop)
        if value is None or value[1] != stop:
            self._report(
                R.RECORD_FORMAT, "A message's key and value do not fit its length.", "", position, "", ""
            )
        elif attributes & CODEC_BITS:
            self._compressed(magic, attributes & CODEC_BITS, self.data[value[0] : value[1]], position)

    def _bytes(self, position: int, stop: int) -> tuple[int, int] | None:
        """Return (start, end) of the bytes field at `position`; None if it is malformed."""
        if position + 4 > stop:
            return None
        size: int = _SIZE.unpack_from(self.data, position)[0]
        end = position + 4 + max(0, size)
        return None if size < -1 or end > stop else (position + 4, end)

    def _compressed(self, magic: int, codec: int, packed: bytes, position: int) -> None:
        if self._inner or codec == ZSTD:
            self._report(
                R.BATCH_COMPRESSION,
                "This message format does not permit the codec.",
                ".attributes",
                position + 17,
                "",
                NAMES.get(codec, str(codec)),
            )
            return
        if codec == LZ4 and magic == 0:
            return  # the checksum in the frame's header is known to be wrong in this format (KIP-57)
        try:
            unpacked = unpack(codec, packed)
        except CorruptError as error:
            self._report(
                R.BATCH_COMPRESSION,
                "The messages do not unpack.",
                ".value",
                position,
                NAMES.get(codec, str(codec)),
                str(error),
            )
        except UnopenedError as error:
            self._report(
                R.BATCH_UNOPENED, "The messages were not unpacked.", ".value", position, "", str(error)
            )
        else:
            self._check_inner(unpacked, position)

    def _check_inner(self, unpacked: bytes, position: int) -> None:
        """Check the set within a compressed message. Offsets of its defects are the compressed message's."""
        found = MessageSetChecker(unpacked, 0, len(unpacked), self._path + ".value", inner=True)
        found.check()
        for defect in found.defects:
            self.defects.append(
                Defect(defect.rule, defect.message, defect.path, position, defect.expected, defect.found)
            )

    def _report(self, rule: R, message: str, path: str, offset: int, expected: str, found: str) -> None:
        self.defects.append(Defect(rule, message, self._path + path, offset, expected, found))
