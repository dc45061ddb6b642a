"""A fetch response whose records are taken out while it arrives: its client is over its quota.

The client is told the throttle time instead (KIP-219). The broker reads the same offsets again next time, so
nothing is lost; all else stays as the broker sent it, so that fetch sessions go on.
"""

from __future__ import annotations

from protocol.framing import LENGTH, LENGTH_BYTES
from protocol.records_remover import RecordsRemover

KEPT_BYTES_MAX = 16 * 1024 * 1024  # not Final: mypyc would inline it, and tests set it
"""A response of more without its records (about 200,000 partitions) is taken for malformed."""


class EmptiedResponse:
    """One response on its way."""

    __slots__ = ("_head", "_remover", "head_bytes")

    def __init__(self, version: int, head: bytes) -> None:
        """Begin with the response's head, through the tagged fields of its header."""
        self._head = head
        self._remover = RecordsRemover(version, kept_bytes_max=KEPT_BYTES_MAX)
        self.head_bytes = len(head)

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Take the body's next bytes, `data[start:stop]`. Raises ProtocolError."""
        self._remover.feed(data, start, stop)

    def frame(self) -> bytearray:
        """Return the whole frame without records. Raises ProtocolError if the response was cut."""
        frame = bytearray(self._head + self._remover.body())
        LENGTH.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
        return frame
