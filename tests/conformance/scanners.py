"""Two scanners of the same bytes: one passes over elements without defects quickly, one reads every field."""

from __future__ import annotations

from weir.conformance.verify.differences import Locator, MessageScanner
from weir.protocol.schema import Layout


def scan_quickly_and_slowly(data: bytes, position: int, layout: Layout) -> MessageScanner:
    """Scan with both, which must agree; return the scanner that passes over elements."""
    quick, slow = MessageScanner(data, position), Locator(data, position, frozenset())
    for scanner in (quick, slow):
        scanner.scan(layout)
    assert quick.defects == slow.defects
    assert (quick.complete, quick.elements) == (slow.complete, slow.elements)
    assert quick.position == slow.position or not quick.complete
    return quick
