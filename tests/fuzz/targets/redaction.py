"""Redaction of captures: no credential is in the output, and sizes stay. It raises nothing."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from tests.fuzz.growth import fillers
from tests.fuzz.target import Grow, Target
from tests.wire.frames import framed, request, response
from weir.conformance.capture.redaction import Redaction
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side
from weir.protocol import messages
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, request_body

M: Final[Any] = messages
SECRET: Final = b"hunter2-the-planted-secret"
TEXT: Final = SECRET.decode()
SEPARATOR: Final = b"\xfe\xfe"
ID: Final = 7
"""Correlation id of the planted messages."""


FIRST: Final = request(M.MetadataRequest(), 1, ID)


class Planted(NamedTuple):
    frames: tuple[tuple[Side, bytes], ...]
    records: bool = False
    """True if the secret is in records: then these are replaced, and credentials are not."""


def _exchange(asked: Any, answered: Any, version: int) -> tuple[tuple[Side, bytes], ...]:
    return ((Side.CLIENT, request(asked, version, ID)), (Side.SERVER, response(answered, version, ID)))


@cache
def planted() -> tuple[Planted, ...]:
    config = M.AlterConfigsRequest.AlterableConfig(name="ssl.keystore.password", value=TEXT)
    resource = M.AlterConfigsRequest.AlterConfigsResource(resource_name="r", configs=[config])
    described = M.DescribeConfigsResponse.DescribeConfigsResourceResult(name="sasl.jaas.config", value=TEXT)
    result = M.DescribeConfigsResponse.DescribeConfigsResult(configs=[described])
    handshakes = tuple(
        (Side.CLIENT, request(M.SaslHandshakeRequest(mechanism=name), 0, ID)) for name in ("PLAIN", "GSSAPI")
    )
    shaken = (Side.SERVER, response(M.SaslHandshakeResponse(mechanisms=["PLAIN"]), 0, ID))
    part = M.ProduceRequest.PartitionProduceData(index=0, records=bytes(61) + SECRET)
    topic = M.ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    return (
        *(
            Planted(
                _exchange(
                    M.SaslAuthenticateRequest(auth_bytes=SECRET),
                    M.SaslAuthenticateResponse(auth_bytes=SECRET),
                    version,
                )
            )
            for version in (0, 1, 2)
        ),
        *(
            Planted((shake, shaken, (Side.CLIENT, framed(SECRET)), (Side.SERVER, framed(SECRET))))
            for shake in handshakes
        ),
        *(
            Planted(
                _exchange(M.AlterConfigsRequest(resources=[resource]), M.AlterConfigsResponse(), version)
                + _exchange(
                    M.DescribeConfigsRequest(), M.DescribeConfigsResponse(results=[result]), 2 + version
                )
            )
            for version in (0, 2)
        ),
        Planted(
            _exchange(M.RenewDelegationTokenRequest(hmac=SECRET), M.RenewDelegationTokenResponse(), 2)
            + _exchange(M.CreateDelegationTokenRequest(), M.CreateDelegationTokenResponse(hmac=SECRET), 2)
        ),
        Planted(((Side.CLIENT, request(M.ProduceRequest(topic_data=[topic]), 9, ID)),), records=True),
    )


def run(data: bytes) -> None:
    """Redact frames of any contents, the planted ones behind them, in parts of any sizes.

    The first byte chooses the place of the secret, the second a gap in the bytes, the third the size
    of parts. The frames before the secret follow, each with a byte that chooses its side. With a gap there
    are none of these: they could contain a request as long as the frames behind.
    """
    choices, rest = data[:3].ljust(3, b"\0"), data[3:]
    case = planted()[choices[0] % len(planted())]
    frames = (
        [(Side.CLIENT, FIRST)]
        if choices[1]
        else [
            (Side(part[0] & 1), framed(part[1:])) for part in rest.split(SEPARATOR) if part and len(rest) > 1
        ]
    )
    redaction = Redaction(credentials=not case.records, records=case.records)
    events = _events([*frames, *case.frames], gap=choices[1], size=choices[2])
    out = [each for event in events for each in redaction.feed(event)]
    out += redaction.finish(1)
    for side in Side:
        assert _size(out, side) == _size(events, side), "sizes stay"
        assert SECRET not in b"".join(
            event.data for event in out if isinstance(event, Bytes) and event.side is side
        ), "the secret is in the output"


def _events(frames: list[tuple[Side, bytes]], gap: int, size: int) -> list[Event]:
    """Return the frames in parts of `size` bytes (0: one part each); the part of number `gap` is missing."""
    events: list[Event] = [Opened(0, 0, "c:1", "s:2")]
    for side, frame in frames:
        step = size or len(frame)
        events += [Bytes(0, 0, side, frame[at : at + step]) for at in range(0, len(frame), step)]
    if 0 < gap < len(events) and isinstance(lost := events[gap], Bytes):
        events[gap] = Dropped(0, 0, lost.side, len(lost.data))
    return [*events, *(Closed(0, 0, side) for side in Side)]


def _size(events: list[Event], side: Side) -> int:
    return sum(
        len(event.data) if isinstance(event, Bytes) else event.count
        for event in events
        if isinstance(event, Bytes | Dropped) and event.side is side
    )


def run_malformed(data: bytes) -> None:
    """Redact a SaslAuthenticate request with any body: what a broker can read of its token is filler."""
    version, body = data[0] % 3 if data else 0, data[1:]
    frame = framed(b"\0\x24" + version.to_bytes(2) + ID.to_bytes(4) + body)
    redaction = Redaction()
    out = [each for event in _events([(Side.CLIENT, frame)], 0, 0) for each in redaction.feed(event)]
    edited = b"".join(event.data for event in out if isinstance(event, Bytes))
    assert len(edited) == len(frame)
    assert not _token(edited, version).strip(b"x")


def _token(frame: bytes, version: int) -> bytes:
    """Return the token that a broker would read; empty if it would read none."""
    try:
        body = request_body(frame, 0, len(frame), flexible=version > 1)
        if body == INCOMPLETE:
            return b""
        return bytes(codec(M.SaslAuthenticateRequest, version).decode_request(frame, body).auth_bytes)
    except ProtocolError:
        return b""


def seeds() -> tuple[bytes, ...]:
    """Return each place of the secret behind other requests, in parts of several sizes."""
    before = (
        b"",
        b"\0" + request(M.MetadataRequest(), 1, ID)[4:],
        b"\0" + request(M.ProduceRequest(acks=0), 9, ID)[4:] + SEPARATOR + b"\1" + ID.to_bytes(4),
        b"\0" + request(M.SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0, ID)[4:],
        b"\0" + request(M.SaslAuthenticateRequest(), 2, ID)[4:] + SEPARATOR + b"\1",
    )
    return tuple(
        bytes((index, gap, size)) + frames
        for index in range(len(planted()))
        for gap, size in ((0, 0), (0, 1), (3, 5))
        for frames in before
    )


def malformed_seeds() -> tuple[bytes, ...]:
    return tuple(
        bytes([version]) + request(M.SaslAuthenticateRequest(auth_bytes=SECRET), version, ID)[12:]
        for version in (0, 1, 2)
    )


def growing() -> dict[str, Grow]:
    return {name: (lambda count, one=one: b"\0\0\1" + one * count) for name, one in FRAMES.items()} | fillers(
        b"\0\0\0"
    )


FRAMES: Final = {"empty frames": b"\0" + SEPARATOR, "short frames": b"\1ab" + SEPARATOR}

REDACTION: Final = Target("redaction", run, seeds, growing)
TOKENS: Final = Target("redacted-tokens", run_malformed, malformed_seeds)
