"""Fetch responses without their records, for clients over their quota: records are removed as they arrive.

The response tells the throttle time instead (KIP-219). The client asks for the same offsets again, so no
record is lost. All other fields stay as the broker sent them, so that fetch sessions (KIP-227) continue.
"""

from __future__ import annotations

from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.scanning.records_remover import RecordsRemover

KEPT_BYTES_MAX = 16 * 1024 * 1024  # not Final: mypyc would inline it, and tests set it
"""Maximum size of a response without its records (about 200,000 partitions); a larger one is malformed."""


class EmptiedResponse:
    """A fetch response whose records are removed while its bytes arrive."""

    __slots__ = ("_head", "_remover", "head_bytes")

    def __init__(self, version: int, head: bytes) -> None:
        """Begin to read a fetch response. `version` is the version of Fetch. `head` is the response's frame
        up to and including the tagged fields of the response header.
        """
        self._head = head
        self._remover = RecordsRemover(version, kept_bytes_max=KEPT_BYTES_MAX)
        self.head_bytes = len(head)

    def feed(self, data: bytearray, start: int, stop: int) -> None:
        """Process the next bytes of the response's body, `data[start:stop]`. Raises ProtocolError if these
        bytes are malformed.
        """
        self._remover.feed(data, start, stop)

    def frame(self) -> bytearray:
        """Return the response's whole frame without its records. Raises ProtocolError if the response ended
        too early.
        """
        frame = bytearray(self._head + self._remover.body())
        LENGTH.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
        return frame
