"""A record of the quota topic: its encoded key and value, its version, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

VERSION: Final = 1
"""Version of the records that this release of Weir writes and reads; records of other versions are
ignored.
"""


class RecordError(ValueError):
    """A record was not written by Weir, or has another version."""


class ProducerRecord(NamedTuple):
    """Encoded key and value of a record that Weir writes. The value is None if the record removes the quotas
    or throttles of its key.
    """

    key: bytes
    value: bytes | None


class ConsumerRecord(NamedTuple):
    """A record read from the topic; any client may have written it."""

    offset: int
    key: bytes | None
    value: bytes | None
    marked: bool = False
    """True if the record has the header that Weir adds to the records it writes."""


class ConsumerRecords(NamedTuple):
    """Consecutive records, read from the topic in one call."""

    records: Sequence[ConsumerRecord]
    at_end: bool
    """True if these are the last records of the topic."""


class _Version(msgspec.Struct):
    version: int


_VERSION_DECODER: Final = msgspec.json.Decoder(_Version)


def version_of(value: bytes) -> int:
    """Return the version in a record's value. Raises RecordError if this Weir does not know it,
    msgspec.MsgspecError, UnicodeDecodeError or RecursionError if the value has no version.
    """
    version = _VERSION_DECODER.decode(value).version
    if version != VERSION:
        raise RecordError(f"it is of version {version}, this Weir knows {VERSION}")
    return version
