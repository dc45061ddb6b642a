"""Verification of captures, which contain any bytes. It raises nothing."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final

from tests.fuzz.growth import wide
from tests.fuzz.target import Target, choosing, chosen
from tests.fuzz.targets.records import STREAMS
from tests.protocol.generate import every_version, sample
from tests.wire.frames import NO_TAGS, framed, header
from weir.conformance.events import Bytes, Side
from weir.conformance.verify import verify
from weir.conformance.verify.record_batches import BatchChecker, bounds
from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec
from weir.protocol.values import schema_of

if TYPE_CHECKING:
    from tests.fuzz.target import Grow

VERSIONS: Final = every_version()
PER_FRAME_MAX: Final = 100
"""Maximum number of findings of a frame: each check has a limit of its own."""
FORMATS: Final = (("Produce", 9), ("Produce", 1), ("Fetch", 11), ("Fetch", 0))


def run(data: bytes) -> None:
    """Verify a frame with this body, as a request, or as the response to a request."""
    index, body = chosen(data, len(VERSIONS))
    message, version = VERSIONS[index]
    schema = schema_of(message)
    kind = request_header_version(schema.api_key, version)
    head = header(schema.api_key, version, 1, b"app", tags=NO_TAGS if kind == 2 else None)
    if schema.kind == "request":
        events = [Bytes(1, 0, Side.CLIENT, framed(head + body))]
    else:
        tags = NO_TAGS * response_header_version(schema.api_key, version)
        answer = framed(struct.pack(">i", 1) + tags + body)
        events = [Bytes(1, 0, Side.CLIENT, framed(head)), Bytes(1, 1, Side.SERVER, answer)]
    assert len(list(verify(events))) <= PER_FRAME_MAX


def run_records(data: bytes) -> None:
    """Check the records of a field."""
    index, records = chosen(data, len(FORMATS))
    checker = BatchChecker(records, bounds(*FORMATS[index]))
    checker.check()
    assert all(0 <= defect.offset <= len(records) + 61 for defect in checker.defects)


@cache
def seeds() -> tuple[bytes, ...]:
    """Return a sample of every message in every version."""
    return tuple(
        choosing(index, codec(message, version).encode(sample(message, version)))
        for index, (message, version) in enumerate(VERSIONS)
    )


def growing() -> dict[str, Grow]:
    """Return wide messages, for the newest version of each."""
    grown: dict[str, Grow] = {}
    for index, (message, version) in enumerate(VERSIONS):
        if version == schema_of(message).versions.max:
            grown |= wide(message, version, choosing(index, b""))
    return grown


def records_seeds() -> tuple[bytes, ...]:
    """Return a batch of each codec."""
    head = struct.Struct(">qiibIhiqqqhii")
    batches = [b"\x12\0\0\0\1\2v\0\0\0", *STREAMS.values()]
    return tuple(
        choosing(0, head.pack(0, 49 + len(one), -1, 2, 0, codec_number, 0, 0, 0, -1, -1, -1, 1) + one)
        for codec_number, one in enumerate(batches)
    )


CAPTURES: Final = Target("captures", run, seeds, growing)
RECORDS: Final = Target("captured-records", run_records, records_seeds)
