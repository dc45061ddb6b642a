"""A finding: one place in a capture that breaks a rule."""

from __future__ import annotations

from typing import Final

import msgspec

from weir.conformance.events import Side
from weir.conformance.verify.rules import R, Severity

_CONTEXT_BYTES: Final = 8


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One place that breaks a rule. Fields that do not apply have -1 or ""."""

    rule: R
    severity: Severity
    connection: int
    time_ns: int
    """Time (ns) since the epoch of the last byte of the frame, or of the event."""
    side: Side
    """Sender of the frame."""
    api: str
    """Kafka's name of the API; "API 999" if the schemas lack it."""
    version: int
    correlation_id: int
    message: str
    """One line that says which peer does something, and what to do."""
    path: str
    """Field, with indices of arrays: "topics[0].partitions[2].records.batch[0].crc"."""
    offset: int
    """Offset (bytes) from the start of the frame's length prefix; within compressed records, of the batch."""
    expected: str
    found: str
    context: str
    """Up to 16 bytes around the offset in hex; the byte at the offset is in brackets."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Identity for a baseline: rule, API, version, and path without indices."""
        return self.rule, self.api, self.version, without_indices(self.path)


class Defect(msgspec.Struct, frozen=True, gc=False):
    """A finding's part that a check knows without its frame."""

    rule: R
    message: str
    path: str = ""
    offset: int = -1
    expected: str = ""
    found: str = ""


def without_indices(path: str) -> str:
    """Return a path with `[]` for each index."""
    return "".join(
        part if not at else "[]" + part.partition("]")[2] for at, part in enumerate(path.split("["))
    )


def hex_around(data: bytes, offset: int) -> str:
    """Return the bytes around `offset` in hex; the one at `offset` is in brackets, "[]" at the end."""
    if not 0 <= offset <= len(data):
        return ""
    before = data[max(0, offset - _CONTEXT_BYTES) : offset].hex(" ")
    after = data[offset + 1 : offset + _CONTEXT_BYTES].hex(" ")
    return f"{before} [{data[offset : offset + 1].hex()}] {after}".strip()
