"""Both halves of a connection, fed any bytes in any cuts. They raise nothing: a peer's fault is a violation.

An input is a program: a byte that chooses the settings, then steps. The low three bits of a step's first byte
choose its kind, the others the cut. Bytes follow an int16 length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tests.fuzz.growth import wide
from tests.fuzz.target import Grow, Target
from tests.protocol.generate import SAMPLE_ID, sample
from tests.proxy.broker_versions import broker_of
from tests.proxy.sasl import AP_REQ, bare, handshake, plain, shaken
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import framed, header, request, response
from weir.protocol.api import ApiKey, response_header_version, versions
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.schema import api_keys
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable

BUFFER_BYTES, LARGE_BUFFER_BYTES = 2048, 1 << 16
"""Frames that are longer are forwarded in parts."""
WHOLE_BYTES_MAX: Final = 4096
FRAME_BYTES_MAX: Final = 1 << 20
STEPS_MAX: Final = 40
CLIENT, BROKER, REQUEST, RESPONSE, TIME, CLIENT_ENDS, BROKER_ENDS, SETTLE = range(8)
RELEASES: Final = (None, (0, 10, 2), (1, 1), (2, 8))
LIMITED, UPLIFTING, FROM_RELEASE, LARGE = 1, 4, 3, 32
"""Bits of the settings (2 is free, so that found inputs stay); the release is in the fourth and fifth."""
SMALL: Final = 31
"""Length (bytes) of small pieces; the longest that a step can state."""
SETTLED_AFTER_MS: Final = 10_000_000


class Step(NamedTuple):
    kind: int
    cut: int
    """Length (bytes) of the pieces that are fed; 0 for one piece."""
    data: bytes


def steps(program: bytes) -> Iterator[Step]:
    """Read a program; whatever is missing at its end is empty."""
    position = 1
    for _ in range(STEPS_MAX):
        if position >= len(program):
            return
        first = program[position]
        kind, cut = first & 7, first >> 3
        size = int.from_bytes(program[position + 1 : position + 3]) if kind <= RESPONSE else 1
        start = position + (3 if kind <= RESPONSE else 1)
        yield Step(kind, cut, program[start : start + size])
        position = start + size


def written(settings: int, *program: tuple[int, int, bytes]) -> bytes:
    return bytes([settings]) + b"".join(
        bytes([kind | cut << 3]) + (len(data).to_bytes(2) if kind <= RESPONSE else b"") + data
        for kind, cut, data in program
    )


@cache
def _table() -> QuotaTable:
    everyone, topic = Entity(client_id="app"), Entity(topic="käse")
    return QuotaTable(
        {
            (everyone, QuotaKey.PRODUCER_BYTE_RATE): 100.0,
            (everyone, QuotaKey.CONSUMER_BYTE_RATE): 100.0,
            (everyone, QuotaKey.REQUEST_PERCENTAGE): 1.0,
            (everyone, QuotaKey.CONTROLLER_MUTATION_RATE): 1.0,
            (topic, QuotaKey.PRODUCER_BYTE_RATE): 10.0,
            (topic, QuotaKey.CONSUMER_BYTE_RATE): 10.0,
        }
    )


def connection(settings: int) -> Connection:
    plans = Plans(Counters(), uplift=bool(settings & UPLIFTING), throttles="weir")
    if settings & LARGE:
        plans.cluster.names_by_id.learn(SAMPLE_ID.bytes, "käse".encode())
    release = RELEASES[settings >> FROM_RELEASE & 3]
    if release is not None:
        plans = plans.for_broker(broker_of(release))
    return new_connection(
        quotas=BrokerQuotas.create(_table() if settings & LIMITED else QuotaTable()),
        plans=plans,
        buffer_bytes=LARGE_BUFFER_BYTES if settings & LARGE else BUFFER_BYTES,
        held_bytes_max=LARGE_BUFFER_BYTES if settings & LARGE else WHOLE_BYTES_MAX,
        frame_bytes_max=FRAME_BYTES_MAX,
        in_flight_max=20,
        node_id=0,
    )


def run(program: bytes) -> None:
    if program:
        run_at(connection(program[0]), program)


def run_at(session: Connection, program: bytes) -> None:
    """Run the steps of a program at a new connection, then let all throttles pass."""
    wire, now_ms = Wire(session), 0
    for step in steps(program):
        if wire.closed(now_ms) is not None:
            return
        if step.kind == TIME:
            now_ms += 1000 * (step.data or b"\0")[0]
            wire.feed(now_ms)
        else:
            _step(wire, session, step, now_ms)
    for _ in range(len(session.in_flight) + 20):
        if wire.closed(now_ms) is not None:
            return
        now_ms += SETTLED_AFTER_MS
        wire.feed(now_ms)
    assert not (session.idle and wire.waiting_bytes > FRAME_BYTES_MAX)


def _step(wire: Wire, session: Connection, step: Step, now_ms: int) -> None:
    if step.kind == CLIENT_ENDS:
        wire.client_ends()
        wire.feed(now_ms)
    elif step.kind == BROKER_ENDS:
        wire.broker_ends()
        wire.feed(now_ms)
    else:
        data = _stream(session, step)
        length = step.cut or max(len(data), 1)
        for start in range(0, len(data), length):
            piece = data[start : start + length]
            if step.kind in (BROKER, RESPONSE):
                wire.feed(now_ms, broker=piece)
            else:
                wire.feed(now_ms, client=piece)


def _stream(session: Connection, step: Step) -> bytes:
    """Return the bytes of a step: unchanged, in a frame, or in a frame that answers the oldest request."""
    if step.kind == REQUEST:
        return framed(step.data)
    if step.kind == RESPONSE:
        oldest = session.in_flight[0].correlation_id if session.in_flight else 0
        return framed(struct.pack(">i", oldest) + step.data)
    return step.data if step.kind in (CLIENT, BROKER) else b""


@cache
def seeds() -> tuple[bytes, ...]:
    """Return an exchange for every API in its oldest and newest version, and SASL exchanges."""
    made = []
    for number, key in enumerate(api_keys()):
        known = versions(key)
        assert known is not None
        for version in {known.min, known.max}:
            asked = request(sample(request_type(key), version), version)[4:]
            answer = response(sample(response_type(key), version), version)[8:]
            if len(asked) < 1 << 15 and len(answer) < 1 << 15:
                made.append(
                    written(
                        number % 32,
                        (REQUEST, number % 5, asked),
                        (RESPONSE, number % 7, answer),
                        (TIME, 0, b"\7"),
                    )
                )
    return (*made, *_sasl())


def _sasl() -> list[bytes]:
    return [
        written(
            0,
            (CLIENT, 0, handshake(mechanism, 0)),
            (BROKER, 0, shaken(0, 0)),
            (CLIENT, 3, bare(token)),
            (BROKER, 0, bare(b"")),
            (CLIENT, 0, request(sample(request_type(ApiKey.HEARTBEAT), 4), 4)),
        )
        for mechanism, token in (("PLAIN", plain("alice")), ("GSSAPI", AP_REQ))
    ]


def growing() -> dict[str, Grow]:
    """Return streams of tiny frames, and frames that arrive in small pieces."""
    tiny = framed(header(ApiKey.HEARTBEAT, 0, 1, None, tags=None))
    grown: dict[str, Grow] = {
        "tiny requests": _stream_of(b"", tiny, 0),
        "tiny requests in pieces": _stream_of(b"", tiny, 3),
        "tiny requests with quotas": _stream_of(b"", tiny, 0, LIMITED),
        "tokens": _stream_of(b"", bare(b"a"), 0),
    }
    for name, filler in (("zeros", b"\0"), ("ones", b"\1"), ("twos", b"\2"), ("continued", b"\xff\xff\x03")):
        for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.JOIN_GROUP):
            for piece in (0, 31, 7):
                grown[f"{key.name} of {name} in pieces of {piece}"] = _one_frame(key, filler, piece)
    for api_key in api_keys():
        grown |= _wide_frames(api_key)
    return grown


def _wide_frames(key: int) -> dict[str, Grow]:
    """Return exchanges of one API whose request, or response, has one wide array and arrives in small
    pieces.
    """
    asked_by, answered_by, known = request_type(key), response_type(key), versions(key)
    assert known is not None
    asked = request(sample(asked_by, known.max), known.max)[4:]
    body = codec(asked_by, known.max).encode(sample(asked_by, known.max))
    head = asked[: len(asked) - len(body)]
    tags = b"\0" * response_header_version(key, known.max)
    settings = LIMITED | LARGE
    wide_requests = {
        name: _program(settings, (), (REQUEST, SMALL, head), grow)
        for name, grow in wide(asked_by, known.max).items()
    }
    wide_responses = {
        name: _program(settings, ((REQUEST, 0, asked),), (RESPONSE, SMALL, tags), grow)
        for name, grow in wide(answered_by, known.max).items()
    }
    return wide_requests | wide_responses


def _program(
    settings: int, before: tuple[tuple[int, int, bytes], ...], last: tuple[int, int, bytes], grow: Grow
) -> Grow:
    kind, cut, head = last
    return lambda count: written(settings, *before, (kind, cut, head + grow(count)))


def _stream_of(head: bytes, frame: bytes, cut: int, settings: int = 0) -> Grow:
    return lambda count: written(settings, (CLIENT, cut, head + frame * count))


def _one_frame(key: ApiKey, filler: bytes, cut: int) -> Grow:
    known = versions(key)
    assert known is not None
    head = header(key, known.max, 1, b"app", tags=b"\0")
    return lambda count: written(LIMITED, (REQUEST, cut, head + filler * (8 * count // len(filler))))


CONNECTIONS: Final = Target("connections", run, seeds, growing)
