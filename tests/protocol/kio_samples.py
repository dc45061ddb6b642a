"""Values of every message that kio knows, in our classes and as jobs for kio."""

from __future__ import annotations

import functools

from hypothesis import given

from tests.properties import examples
from tests.protocol import kio_side
from tests.protocol.generate import every_version, messages
from tests.protocol.plain import plain
from weir.protocol.values import Message, schema_of


@functools.cache
def samples(message: type[Message], version: int) -> list[Message]:
    found: list[Message] = []

    @examples(6)
    @given(value=messages(message, version, tame=True))
    def collect(value: Message) -> None:
        found.append(value)

    collect()
    return found


def jobs(message: type[Message], version: int) -> list[kio_side.Job]:
    schema = schema_of(message)
    return [(schema.api_key, schema.kind, version, plain(value)) for value in samples(message, version)]


def in_kio() -> list[tuple[type[Message], int]]:
    return [
        (message, version)
        for message, version in every_version()
        if kio_side.kio_class(schema_of(message).api_key, schema_of(message).kind, version) is not None
    ]


KNOWN = in_kio()
