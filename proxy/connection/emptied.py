"""Fetch responses without their records, for clients over their quota: records are removed as they arrive.

The response tells the throttle time instead (KIP-219). The client asks for the same offsets again, so no
record is lost. All other fields stay as the broker sent them, so that fetch sessions (KIP-227) continue.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from weir.protocol.framing import LENGTH, LENGTH_BYTES
from weir.protocol.scanning.records_remover import RecordsRemover, whole_remover

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Plan, StreamRewrite

KEPT_BYTES_MAX = 16 * 1024 * 1024  # not Final: mypyc would inline it, and tests set it
"""Maximum size (bytes) of a fetch response whose records were removed: about 200,000 partitions. A larger one
is treated as malformed.
"""
REWRITTEN_ELEMENTS_MAX: Final = 5_000
"""Number of elements of a response whose addresses are rewritten at its end. Of a longer one they are masked
while it arrives.
"""


class EmptiedResponse:
    """A fetch response whose records are removed while its bytes arrive."""

    __slots__ = (
        "_elements",
        "_kept",
        "_masked_bytes",
        "_plan",
        "_remover",
        "head_bytes",
        "mask",
    )

    def __init__(self, plan: Plan, head: bytearray) -> None:
        """Begin to read a fetch response. `head` is the response's frame up to and including the tagged
        fields of the response header.
        """
        self._plan = plan
        self._kept = head
        """The frame without records, if the whole response had arrived when its processing began."""
        self._remover: RecordsRemover | None = None
        """Object that removes the records of a response that arrives in parts, or is processed in more than
        one turn; else None.
        """
        self._elements = 0
        """Number of elements visited so far."""
        self._masked_bytes = self.head_bytes = len(head)
        """Number of bytes of the frame without records that `mask` has processed."""
        self.mask: StreamRewrite | None = None
        """Object that masks brokers' addresses in the response; None if they are to be rewritten."""

    def take_all(self, data: bytearray, body: int, end: int, elements_max: int) -> int:
        """Process the complete response with body `data[body:end]`. Return the number of elements that might
        still have been visited; -1, without any effect, if the response has more than `elements_max`
        elements. Raises ProtocolError if it is malformed.
        """
        remove = whole_remover(self._plan.version)
        left = remove(data, body, end, elements_max, self._kept, KEPT_BYTES_MAX)
        if left < 0:
            del self._kept[self.head_bytes :]
        return left

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest call of `feed` might still have visited."""
        return 0 if self._remover is None else self._remover.elements_left

    @property
    def skippable_bytes(self) -> int:
        """0: every byte must be seen."""
        return 0

    def skip(self, count: int) -> None:
        """Never called, because no byte is skippable."""
        raise AssertionError(count)

    def feed(self, data: bytearray, start: int, stop: int, elements_max: int) -> int:
        """Process the next bytes of the response's body, `data[start:stop]`, up to `elements_max` elements.
        Return the position behind the processed bytes. Raises ProtocolError if they are malformed.
        """
        remover = self._remover
        if remover is None:
            remover = RecordsRemover(self._plan.version, kept_bytes_max=KEPT_BYTES_MAX, head=self._kept)
            self._remover = remover
        fed_to = remover.feed(data, start, stop, elements_max)
        self._elements += elements_max - remover.elements_left
        if self._elements > REWRITTEN_ELEMENTS_MAX and self.mask is None and self._plan.rewrite_stream:
            self.mask = self._plan.rewrite_stream(0)
        if self.mask is not None:
            kept = remover.kept
            self._masked_bytes = self.mask.feed(kept, self._masked_bytes, len(kept), sys.maxsize)
        return fed_to

    def mask_all(self, frame: bytearray) -> None:
        """Mask brokers' addresses in the result of `frame`, unless they were masked while it arrived."""
        if self.mask is None and self._plan.rewrite_stream is not None:
            end = len(frame)
            self._plan.rewrite_stream(end - self.head_bytes).feed(frame, self.head_bytes, end, sys.maxsize)

    def frame(self) -> bytearray:
        """Return the response's whole frame without its records. Raises ProtocolError if the response ended
        too early.
        """
        frame = self._kept if self._remover is None else self._remover.body()
        LENGTH.pack_into(frame, 0, len(frame) - LENGTH_BYTES)
        return frame
