"""A redaction that is fed with parts of a connection's bytes."""

from __future__ import annotations

from typing import TypeAlias

from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Bytes, Dropped, Opened, Side

Parts: TypeAlias = list[tuple[Side, bytes]]


def redacted(redaction: Redaction, parts: Parts, chunk: int = 1 << 20) -> dict[Side, bytes]:
    """The bytes of each side after redaction; each part is fed in chunks of so many bytes."""
    found = dict.fromkeys(Side, b"")
    events = list(redaction.feed(Opened(0, 1, "c:1", "s:2")))
    for side, data in parts:
        for start in range(0, len(data), chunk):
            events += redaction.feed(Bytes(0, 2, side, data[start : start + chunk]))
    events += redaction.finish(3)
    for event in events:
        assert not isinstance(event, Dropped)
        if isinstance(event, Bytes):
            found[event.side] += event.data
    return found
