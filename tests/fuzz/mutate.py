"""Changes of inputs by chance: of bytes, of blocks, and between two inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.protocol.mutate import mutate

if TYPE_CHECKING:
    import random

INPUT_BYTES_MAX: Final = 4096
BLOCK_BYTES_MAX: Final = 64
REPEATS_MAX: Final = 8


def changed(inputs: Sequence[bytes], source: random.Random) -> bytes:
    """Return a new input, made from one or two of `inputs`."""
    data = source.choice(inputs)
    match source.randrange(8):
        case 0:
            other = source.choice(inputs)
            data = data[: source.randrange(len(data) + 1)] + other[source.randrange(len(other) + 1) :]
        case 1:
            start, stop = _block(data, source)
            at = source.randrange(len(data) + 1)
            data = data[:at] + data[start:stop] * source.randint(1, REPEATS_MAX) + data[at:]
        case 2:
            start, stop = _block(data, source)
            data = data[:start] + data[stop:]
        case _:
            pass
    return mutate(data, source)[:INPUT_BYTES_MAX]


def _block(data: bytes, source: random.Random) -> tuple[int, int]:
    start = source.randrange(len(data) + 1)
    return start, start + source.randint(1, BLOCK_BYTES_MAX)
