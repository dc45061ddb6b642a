"""Checks record batches (magic 2, KIP-98) and the older message sets (magic 0 and 1, KIP-32).

`BatchChecker.check` takes the bytes of one field. Batches in fetch responses may have gaps, because topics
are compacted, and the last one may be incomplete, because brokers cut at the maximum size. Control batches
are records like others.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.verify import wrong_checksums
from weir.conformance.verify.finding import Defect
from weir.conformance.verify.message_sets import MessageSetChecker
from weir.conformance.verify.records import MalformedRecordError, scan_records
from weir.conformance.verify.rules import R
from weir.conformance.verify.unpacking import NAMES, CorruptError, UnopenedError, unpack
from weir.protocol.checksums import crc32c
from weir.protocol.scanning.record_batches import BATCH_HEAD_BYTES, CODEC_BITS, MAGIC_OFFSET
from weir.protocol.scanning.unpacked_sizes import ZSTD

if TYPE_CHECKING:
    from weir.conformance.verify.records import Summary

_HEAD: Final = Struct(">qiibIhiqqqhii")
_SIZE: Final = Struct(">i")
_ENTRY_BYTES: Final = 12
"""Size (bytes) of the offset and the length before a batch or message."""
_MESSAGE_BYTES_MIN: Final = 26
"""Size (bytes) of a message of magic 0 without key and value."""
_CRC_START: Final = 21
_LOG_APPEND_TIME: Final = 8
_TRANSACTIONAL: Final = 16
DEFECTS_MAX: Final = 20
"""Maximum number of defects reported of one field."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """Header of a batch (magic 2)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp: int
    timestamp_max: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


class PermittedFormats(msgspec.Struct, frozen=True):
    """The formats that an API's version permits."""

    magic_max: int
    zstd: bool
    produce: bool
    """True for Produce: offsets are consecutive, and no batch is incomplete."""
    one_batch: bool


def bounds(api: str, version: int) -> PermittedFormats:
    """Return the permitted formats of a version of Produce, Fetch or ShareFetch (KIP-32, KIP-98, KIP-110)."""
    if api == "Produce":
        return PermittedFormats(
            2 if version >= 3 else 1 if version == 2 else 0, version >= 7, True, version >= 3
        )
    if api == "Fetch":
        return PermittedFormats(2 if version >= 4 else 1 if version >= 2 else 0, version >= 10, False, False)
    return PermittedFormats(2, True, False, False)


class BatchChecker:
    """Checks the batches of one field. `defects` and `heads` have the results."""

    def __init__(self, data: bytes, permitted: PermittedFormats) -> None:
        self.data = data
        self.permitted = permitted
        self.defects: list[Defect] = []
        self.heads: list[tuple[str, Head, int]] = []
        """Path, header and offset (bytes) of each batch of magic 2 whose header could be read."""
        self._path = ""
        self._start = 0

    def check(self) -> None:
        """Check all batches of the field."""
        position = number = 0
        offset = -1
        while position < len(self.data) and len(self.defects) < DEFECTS_MAX:
            self._path, self._start = f".batch[{number}]", position
            stop = self._stop(position)
            if stop < 0:
                break
            if self._is_magic_known(position):
                if self.data[position + MAGIC_OFFSET] == 2:
                    offset = self._batch(position, stop, offset)
                else:
                    found = MessageSetChecker(self.data, position, stop, self._path)
                    found.check()
                    self.defects += found.defects
            position, number = stop, number + 1
        self._check_number(number)

    def _check_number(self, number: int) -> None:
        if self.permitted.one_batch and (number != 1 or not self.heads) and not self.defects:
            self._path, self._start = "", 0
            magics = "" if self.heads else " of another magic"
            self._report(
                R.PRODUCE_ONE_BATCH,
                "The producer sends another number of batches.",
                "",
                0,
                "1 batch of magic 2",
                f"{number} batches{magics}",
            )

    def _stop(self, position: int) -> int:
        """Return the end of the batch or message at `position`; -1 if it is not complete."""
        left = len(self.data) - position
        size: int = _SIZE.unpack_from(self.data, position + 8)[0] if left >= _ENTRY_BYTES else 0
        is_batch = left > MAGIC_OFFSET and self.data[position + MAGIC_OFFSET] >= 2
        least = (BATCH_HEAD_BYTES if is_batch else _MESSAGE_BYTES_MIN) - _ENTRY_BYTES
        if left >= _ENTRY_BYTES and size < least:
            self._report(
                R.BATCH_LENGTH,
                "A batch is shorter than its header.",
                ".length",
                8,
                f"at least {least}",
                str(size),
            )
            return -1
        if left < _ENTRY_BYTES or size > left - _ENTRY_BYTES:
            if self.permitted.produce:
                self._report(
                    R.BATCH_LENGTH,
                    "A batch's length exceeds the end of the records.",
                    ".length",
                    8,
                    f"at most {max(0, left - _ENTRY_BYTES)}",
                    str(size),
                )
            return -1
        return position + _ENTRY_BYTES + size

    def _is_magic_known(self, position: int) -> bool:
        magic = self.data[position + MAGIC_OFFSET]
        if magic > self.permitted.magic_max:
            self._report(
                R.BATCH_MAGIC,
                "This version does not permit the magic.",
                ".magic",
                MAGIC_OFFSET,
                f"at most {self.permitted.magic_max}",
                str(magic),
            )
        return magic <= 2

    def _batch(self, position: int, stop: int, before: int) -> int:
        """Check one batch of magic 2; return its last offset. `before`: last offset of the batch before."""
        head = Head(*_HEAD.unpack_from(self.data, position))
        self.heads.append((self._path, head, position))
        found = crc32c(memoryview(self.data)[position + _CRC_START : stop])
        if found != head.crc:
            self._report(
                R.BATCH_CRC,
                wrong_checksums.explain(self.data[position:stop], head.crc),
                ".crc",
                17,
                f"{found:08x}",
                f"{head.crc:08x}",
            )
        if not self.permitted.produce and head.base_offset <= before:
            self._report(
                R.BATCH_OFFSETS,
                "A batch begins before the end of the batch before it.",
                ".base_offset",
                0,
                f"above {before}",
                str(head.base_offset),
            )
        if self.permitted.produce and before < 0 and head.base_offset:
            self._report(
                R.BATCH_OFFSETS,
                "The base offset of a produced batch is not 0. Brokers answer error 87.",
                ".base_offset",
                0,
                "0",
                str(head.base_offset),
            )
        self._check_producer(head)
        if found == head.crc:
            self._open(head, position, stop)
        return head.base_offset + head.last_delta

    def _check_producer(self, head: Head) -> None:
        given = (head.producer_id, head.producer_epoch, head.base_sequence)
        if head.producer_id < 0:
            if head.attributes & _TRANSACTIONAL:
                self._report(
                    R.PRODUCER_STATE,
                    "A transactional batch has no producer id.",
                    ".producer_id",
                    43,
                    "a producer id",
                    str(given[0]),
                )
        elif self.permitted.produce and min(given) < 0:
            self._report(
                R.PRODUCER_STATE,
                "A producer id lacks its epoch or sequence.",
                ".producer_epoch",
                51,
                "none negative",
                str(given),
            )

    def _open(self, head: Head, position: int, stop: int) -> None:
        codec = head.attributes & CODEC_BITS
        try:
            if codec:
                if codec == ZSTD and not self.permitted.zstd:
                    self._report(
                        R.BATCH_MAGIC,
                        "This version does not permit zstd.",
                        ".attributes",
                        21,
                        "another codec",
                        "zstd",
                    )
                unpacked = unpack(codec, self.data[position + BATCH_HEAD_BYTES : stop])
                summary = scan_records(unpacked, 0, len(unpacked))
            else:
                summary = scan_records(self.data, position + BATCH_HEAD_BYTES, stop)
        except CorruptError as error:
            name = NAMES.get(codec, str(codec))
            self._report(R.BATCH_COMPRESSION, "The records do not unpack.", ".records", 61, name, str(error))
        except UnopenedError as error:
            self._report(R.BATCH_UNOPENED, "The records were not unpacked.", ".records", 61, "", str(error))
        except MalformedRecordError as error:
            at = BATCH_HEAD_BYTES if codec else error.offset - position
            self._report(
                R.RECORD_FORMAT, "A record is malformed.", f".records[{error.number}]", at, "", str(error)
            )
        else:
            self._compare(head, summary)

    def _compare(self, head: Head, summary: Summary) -> None:
        """Compare the header with the records."""
        if head.count != summary.count:
            self._report(
                R.BATCH_COUNT,
                "The header's number of records is not that of the records behind it.",
                ".records_count",
                57,
                str(summary.count),
                str(head.count),
            )
            return
        self._check_offsets(head, summary)
        latest = head.base_timestamp + summary.timestamp_delta_max
        if summary.count and not head.attributes & _LOG_APPEND_TIME and latest != head.timestamp_max:
            self._report(
                R.BATCH_TIMESTAMPS,
                "The header's timestamp is not the greatest of the records.",
                ".max_timestamp",
                35,
                str(latest),
                str(head.timestamp_max),
            )

    def _check_offsets(self, head: Head, summary: Summary) -> None:
        if summary.out_of_order >= 0:
            path = f".records[{summary.out_of_order}].offset_delta"
            self._report(
                R.BATCH_OFFSETS, "An offset does not ascend.", path, 61, "above the one before", "not above"
            )
        elif self.permitted.produce and not summary.consecutive:
            self._report(
                R.BATCH_OFFSETS, "Offset deltas are not 0, 1, 2, ….", ".records", 61, "consecutive", "gaps"
            )
        elif (
            self.permitted.produce and head.last_delta != summary.last_delta
        ) or head.last_delta < summary.last_delta:
            self._report(
                R.BATCH_OFFSETS,
                "The header's last offset delta is not the last record's. Deltas count from 0.",
                ".last_offset_delta",
                23,
                str(summary.last_delta),
                str(head.last_delta),
            )

    def _report(self, rule: R, message: str, path: str, offset: int, expected: str, found: str) -> None:
        self.defects.append(Defect(rule, message, self._path + path, self._start + offset, expected, found))
