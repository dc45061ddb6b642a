"""Verification of captures, which contain any bytes. It raises nothing."""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from tests.conformance.scanners import scan_quickly_and_slowly
from tests.fuzz.growth import wide
from tests.fuzz.target import Grow, Target, choosing, chosen
from tests.fuzz.targets.records import STREAMS
from tests.protocol.generate import every_version, sample
from tests.wire.frames import NO_TAGS, framed, header, request, response
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.conformance.verify import verify
from weir.conformance.verify.record_batches import BatchChecker, bounds
from weir.protocol.api import request_header_version, response_header_version
from weir.protocol.codec import codec
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from weir.protocol.values import schema_of

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
    index, records = chosen(data, len(FORMATS))
    checker = BatchChecker(records, bounds(*FORMATS[index]))
    checker.check()
    assert all(0 <= defect.offset <= len(records) + 61 for defect in checker.defects)


def run_scanners(data: bytes) -> None:
    index, body = chosen(data, len(VERSIONS))
    scan_quickly_and_slowly(body, 0, codec(*VERSIONS[index]).layout)


def run_events(data: bytes) -> None:
    """Verify the bytes of two connections: each part of the input is an event, its first byte the kind."""
    events: list[Event] = []
    for number, part in enumerate(data.split(b"\xfe\xfe")):
        kind = part[0] if part else 0
        connection, side = kind >> 1 & 1, Side(kind & 1)
        match kind >> 2 & 7:
            case 5:
                events.append(Opened(connection, number, "", ""))
            case 6:
                events.append(Closed(connection, number, side))
            case 7:
                events.append(Dropped(connection, number, side, 1 + kind))
            case _:
                events.append(Bytes(connection, number, side, part[1:]))
    for finding in verify(events):
        assert finding.message
        assert finding.offset >= -1


def events_seeds() -> tuple[bytes, ...]:
    """Return requests and responses in parts, with and without gaps."""
    shake = request(SaslHandshakeRequest(mechanism="PLAIN"), 0), response(SaslHandshakeResponse(), 0)
    ask, answer = request(ApiVersionsRequest(), 3), response(ApiVersionsResponse(), 3)
    first = b"\xfe\xfe".join((b"\0" + shake[0], b"\1" + shake[1], b"\0" + framed(b"token"), b"\1\0\0\0\0"))
    second = b"\xfe\xfe".join((b"\0" + ask[:9], b"\0" + ask[9:], b"\1" + answer, b"\x18", b"\x19"))
    return (
        first,
        second,
        second + b"\xfe\xfe\x1c\xfe\xfe" + second,
        b"\0" + ask + ask + b"\xfe\xfe\1" + answer,
    )


@cache
def seeds() -> tuple[bytes, ...]:
    return tuple(
        choosing(index, codec(message, version).encode(sample(message, version)))
        for index, (message, version) in enumerate(VERSIONS)
    )


def growing() -> dict[str, Grow]:
    grown: dict[str, Grow] = {}
    for index, (message, version) in enumerate(VERSIONS):
        if version == schema_of(message).versions.max:
            grown |= wide(message, version, choosing(index, b""))
    return grown


def records_seeds() -> tuple[bytes, ...]:
    head = struct.Struct(">qiibIhiqqqhii")
    batches = [b"\x12\0\0\0\1\2v\0\0\0", *STREAMS.values()]
    return tuple(
        choosing(0, head.pack(0, 49 + len(one), -1, 2, 0, codec_number, 0, 0, 0, -1, -1, -1, 1) + one)
        for codec_number, one in enumerate(batches)
    )


CAPTURES: Final = Target("captures", run, seeds, growing)
RECORDS: Final = Target("captured-records", run_records, records_seeds)
SCANNERS: Final = Target("message-scanners", run_scanners, seeds)
EVENTS: Final = Target("captured-events", run_events, events_seeds)
