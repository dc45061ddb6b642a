"""Values of every message that kio knows, in our classes and as jobs for kio."""

from __future__ import annotations

import functools
from random import Random

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from tests.protocol import kio_side
from tests.protocol.generate import drawn, every_version
from tests.protocol.plain import plain
from weir.protocol.values import Message, schema_of


@functools.cache
def samples(message: type[Message], version: int) -> list[Message]:
    return [drawn(message, version, Random(seed), tame=True) for seed in range(2)]


def jobs(message: type[Message], version: int) -> list[kio_side.Job]:
    schema = schema_of(message)
    return [(schema.api_key, schema.kind, version, plain(value)) for value in samples(message, version)]


def in_kio() -> list[tuple[type[Message], int]]:
    """By kio's index: its classes take seconds to import, in each process that collects tests."""
    return [(message, version) for message, version in every_version() if _is_in_kio(message, version)]


def _is_in_kio(message: type[Message], version: int) -> bool:
    schema = schema_of(message)
    name = api_key_map.get(schema.api_key, "")
    return EntityType[schema.kind] in schema_name_map.get(name, {}).get(version, {})


KNOWN = in_kio()
