"""Fetch responses without their records, for clients over their quota: records are removed as they arrive.

The response tells the throttle time instead (KIP-219). The client asks for the same offsets again, so no
record is lost. All other fields stay as the broker sent them, so that fetch sessions (KIP-227) continue.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from weir.protocol.errors import ProtocolError
from weir.protocol.framing import LENGTH, LENGTH_BYTES, response_body
from weir.protocol.scanning.records_remover import RecordsRemover, whole_remover
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.in_flight import SPARE, SPARE_MAX, RequestInFlight
from weir.proxy.connection.in_parts import process_part
from weir.proxy.connection.reporting import growth, mute, report
from weir.proxy.connection.response_in_progress import EMPTY, NEXT_OF_RESPONSE
from weir.proxy.connection.usage_counters import CONSUMER, OLD_READ, TOPIC
from weir.proxy.handlers.decisions import WAIT, Wait
from weir.proxy.handlers.plan import IN_PARTS, RESPONSE_QUOTA, Removal, ResponseEdit, StreamRewrite
from weir.quotas import QuotaKey

if TYPE_CHECKING:
    from weir.proxy.connection.connection import Connection
    from weir.proxy.handlers.plan import Plan

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

    __slots__ = ("_elements", "_plan", "_remover", "mask", "removal")

    def __init__(self, plan: Plan, removal: Removal, head: bytearray) -> None:
        """Begin to read a fetch response. `head` is the response's frame up to and including the tagged
        fields of the response header.
        """
        self.removal = removal
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


def empty(
    connection: Connection,
    record: RequestInFlight,
    removal: Removal,
    data: bytearray,
    frame: int,
    body: int,
    end: int,
    stop: int,
) -> bytearray | Wait:
    """Remove the records from the part of a response that has arrived, `data[frame:end]`; the response ends
    at `stop`. Return the frame to send instead of a complete response; WAIT for a response whose other bytes
    are to come, or which has more elements than the turn allows. Raises ProtocolError if it is malformed.
    """
    plan, clock, response = record.plan, connection.clock, connection.response
    if end == stop:  # no scan that can pause
        elements_max, whole = clock.elements_left(), data[frame:body]
        left = whole_remover(plan.version)(data, body, end, elements_max, whole, KEPT_BYTES_MAX)
        clock.scanned += elements_max - left if left > 0 else elements_max
        if left >= 0:
            _finish_frame(connection, record, removal, whole, body - frame, None)
            return whole
    response.state = NEXT_OF_RESPONSE[response.state][EMPTY]
    response.rewriter = EmptiedResponse(plan, removal, data[frame:body])
    connection.broker_end.rest_bytes = stop - end
    connection.broker_end.rest_bytes = stop - process_part(connection, data, body, end)
    return WAIT


def finish_emptied(connection: Connection) -> None:
    """Send the response whose records were removed in parts."""
    response, record = connection.response, connection.in_flight[0]
    rewriter = response.rewriter
    assert isinstance(rewriter, EmptiedResponse)
    try:
        frame = rewriter.frame()
        _finish_frame(connection, record, rewriter.removal, frame, rewriter.head_bytes, rewriter.mask)
    except ProtocolError as error:
        connection.violate(CloseReason.RESPONSE_MALFORMED, str(error))
        return
    response.end()
    connection.in_flight.popleft()
    if len(SPARE) < SPARE_MAX:
        SPARE.append(record)
    connection.effects.to_client.append(memoryview(frame))


def _finish_frame(
    connection: Connection,
    record: RequestInFlight,
    removal: Removal,
    frame: bytearray,
    body: int,
    mask: StreamRewrite | None,
) -> None:
    """Write the length, the throttle time and the addresses into a frame whose records were removed, and take
    no requests from the client for the throttle time. `mask` has masked the addresses already; None if not.
    Raises ProtocolError if a field is missing.

    The bytes are not charged: a broker charges such a response and takes the charge back.
    """
    plan, response, end, ledger = record.plan, connection.response, len(frame), record.ledger
    assert ledger is not None
    LENGTH.pack_into(frame, 0, end - LENGTH_BYTES)
    if record.cost_us or record.time_ledger is not None or record.usage_counters is not None:
        record.begin_response(connection, end - LENGTH_BYTES, charged=False)
    record.byte_counter = None
    until_ms = record.until_ms
    client_ms, topics_ms, old_ms = removal.tell(connection, ledger)
    if client_ms:
        until_ms = max(until_ms, mute(connection, RESPONSE_QUOTA, client_ms, CONSUMER))
    if topics_ms:
        until_ms = max(until_ms, mute(connection, RESPONSE_QUOTA, topics_ms, TOPIC))
    if old_ms:
        until_ms = max(until_ms, mute(connection, QuotaKey.OLD_READ_BYTE_RATE, old_ms, OLD_READ))
    if removal.on_emptied is not None:
        removal.on_emptied(connection, frame, body, end)
    edit: ResponseEdit | Wait | None = None
    if until_ms > connection.now_ms:
        response.report_ms = until_ms - connection.now_ms
        if not report(connection, plan, frame, body, end, True):
            edit = WAIT
    if edit is None and plan.rewrite is not None:
        edit = plan.rewrite(connection, frame, body, end, True)
    if isinstance(edit, ResponseEdit):
        LENGTH.pack_into(frame, 0, end - LENGTH_BYTES + growth(connection, edit))
        frame[edit.start : edit.stop] = edit.replacement
    elif edit is IN_PARTS and mask is None and plan.rewrite_stream is not None:
        plan.rewrite_stream(end - body).feed(frame, body, end, sys.maxsize)
    elif edit is WAIT:
        raise ProtocolError("the response ends within a field")
