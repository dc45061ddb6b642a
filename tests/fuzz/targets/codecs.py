"""Codecs of all APIs and versions. Documented error: ProtocolError."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tests.fuzz.growth import fillers, wide
from tests.fuzz.target import Grow, Target, choosing, chosen
from tests.protocol.generate import every_version, sample
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError, UnencodableError

VERSIONS: Final = every_version()


def run(data: bytes) -> None:
    """Decode strictly; the message encodes, and decodes to the same bytes again."""
    index, body = chosen(data, len(VERSIONS))
    subject: Any = codec(*VERSIONS[index])
    try:
        message = subject.decode(body)
    except ProtocolError as error:
        _check_offset(error, 0, body)
        return
    again = subject.encode(message)
    assert subject.encode(subject.decode(again)) == again


def run_as_a_broker(data: bytes) -> None:
    """Decode leniently: a request that is not UnencodableError encodes. Its encoding decodes strictly."""
    index, body = chosen(data, len(VERSIONS))
    subject: Any = codec(*VERSIONS[index])
    try:
        message = subject.decode_request(body)
    except UnencodableError:
        return
    except ProtocolError as error:
        _check_offset(error, -1, body)
        return
    subject.decode(subject.encode(message))


def _check_offset(error: ProtocolError, least: int, body: bytes) -> None:
    assert least <= error.offset <= len(body), error


@cache
def seeds() -> tuple[bytes, ...]:
    return tuple(
        choosing(index, codec(message, version).encode(sample(message, version)))
        for index, (message, version) in enumerate(VERSIONS)
    )


def growing() -> dict[str, Grow]:
    """Return wide messages, and fillers for a flexible and an older version of one."""
    grown: dict[str, Grow] = {}
    for index, (message, version) in enumerate(VERSIONS):
        versions = [other for kind, other in VERSIONS if kind is message]
        if version in (min(versions), max(versions)):
            grown |= wide(message, version, choosing(index, b""))
            grown |= {
                f"{message.__name__} v{version} {name}": grow
                for name, grow in fillers(choosing(index, b"")).items()
            }
    return grown


STRICT: Final = Target("codecs", run, seeds, growing)
AS_A_BROKER: Final = Target("codecs-as-a-broker", run_as_a_broker, seeds, growing)
