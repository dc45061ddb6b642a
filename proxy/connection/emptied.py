"""Fetch responses without their records, for clients over their quota: records are removed as they arrive.

The response tells the throttle time instead (KIP-219). The client asks for the same offsets again, so no
record is lost. All other fields stay as the broker sent them, so that fetch sessions (KIP-227) continue.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from weir.protocol.framing import response_body
from weir.protocol.scanning.records_remover import RecordsRemover

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

    __slots__ = ("_elements", "_plan", "_remover", "mask")

    def __init__(self, plan: Plan, head: bytearray) -> None:
        """Begin to read a fetch response. `head` is the response's frame up to and including the tagged
        fields of the response header.
        """
        self._plan = plan
        self._remover = RecordsRemover(plan.version, kept_bytes_max=KEPT_BYTES_MAX, head=head)
        self._elements = 0
        """Number of elements visited so far."""
        self.mask: StreamRewrite | None = None
        """Object that masks brokers' addresses in the response; None if they are to be rewritten."""

    @property
    def head_bytes(self) -> int:
        """Length (bytes) of the frame's header, which the body follows."""
        kept = self._remover.kept
        return response_body(kept, 0, len(kept), flexible=self._plan.flexible_response)

    @property
    def elements_left(self) -> int:
        """Number of elements that the latest call of `feed` might still have visited."""
        return self._remover.elements_left

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
        kept = remover.kept
        masked_bytes = self.head_bytes if self.mask is None else len(kept)
        fed_to = remover.feed(data, start, stop, elements_max)
        self._elements += elements_max - remover.elements_left
        if self._elements > REWRITTEN_ELEMENTS_MAX and self.mask is None and self._plan.rewrite_stream:
            self.mask = self._plan.rewrite_stream(0)
        if self.mask is not None:
            self.mask.feed(kept, masked_bytes, len(kept), sys.maxsize)
        return fed_to

    def frame(self) -> bytearray:
        """Return the response's whole frame without its records, but with the broker's length. Raises
        ProtocolError if the response ended too early.
        """
        return self._remover.body()
